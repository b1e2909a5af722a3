"""The public LEO embeddings of miniImageNet and tieredImageNet: ``leo_embeddings``."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.citations import REN2018, RUSU2019, VINYALS2016
from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="leo_embeddings",
            target="metaforge_leo_embeddings.source:load",
            options="metaforge_leo_embeddings.options:LeoEmbeddingsOptions",
            summary="miniImageNet or tieredImageNet as the features that LEO's authors released",
            cites=(RUSU2019, VINYALS2016, REN2018),
            check="metaforge_leo_embeddings.layout:check",
            groups=False,
            tasks=("classification",),
            facts="metaforge_leo_embeddings.layout:facts",
            files="metaforge_leo_embeddings.layout:placement",
        )
    ]
