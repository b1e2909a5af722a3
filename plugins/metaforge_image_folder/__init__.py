"""Own images in one line: ``image_folder``, a folder for each class."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="image_folder",
            target="metaforge_image_folder.source:load",
            options="metaforge_image_folder.options:ImageFolderOptions",
            summary="own images, a folder for each class: CLASS/*.png or SPLIT/CLASS/*.png",
            check="metaforge_image_folder.checks:check",
            groups="metaforge_image_folder.layout:has_groups",
            tasks=("classification",),
            facts="metaforge_image_folder.checks:facts",
        )
    ]
