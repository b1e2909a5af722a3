"""The embedded default data: letters of a dozen scripts in the typefaces of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="glyphs",
            target="metaforge_glyphs.source:load",
            options="metaforge_glyphs.options:GlyphsOptions",
            summary="letters of a dozen scripts in matplotlib's typefaces: which letter is it, "
            "or which typeface; embedded, no download",
            check="metaforge_glyphs.plan:check",
            groups=True,
            tasks=("classification",),
            facts="metaforge_glyphs.plan:facts",
        )
    ]


@hookimpl
def metaforge_backbones() -> Sequence[Component]:
    return [
        Component(
            kind="backbone",
            name="glyph_conv",
            target="metaforge_glyphs.backbone:GlyphConv",
            options="metaforge_glyphs.options:GlyphConvOptions",
            summary="a small convolutional network, pre-trained on glyphs' training scripts",
            check="metaforge.weights:missing_weights",
        )
    ]
