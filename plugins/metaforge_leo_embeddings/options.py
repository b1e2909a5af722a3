"""Options of the data set ``leo_embeddings``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from metaforge.task_options import TaskOptions

#: The released archive's own folder for each variant.
FOLDERS = {"mini": "miniImageNet", "tiered": "tieredImageNet"}


class LeoEmbeddingsOptions(TaskOptions):
    """Tasks on the features that LEO's authors released."""

    dir: Path = Field(
        Path("$METAFORGE_DATA/embeddings"),
        description="the unzipped archive, or one folder of it that has the three files; relative "
        "to the recipe; $VARIABLES and ~ are expanded",
    )
    variant: Literal["mini", "tiered"] = Field("mini", description="miniImageNet or tieredImageNet")
    crop: Literal["center", "multiview"] = Field(
        "center", description="features of the centre crop, or averaged over several (mini alone)"
    )
    normalize: Literal["l2", "none"] = Field(
        "l2", description="of features: each row to unit length, as LEO and TASML do, or as it is"
    )

    @property
    def subfolder(self) -> Path:
        """Where the three files are in the archive."""
        return Path(FOLDERS[self.variant], self.crop)

    @model_validator(mode="after")
    def _released(self) -> Self:
        if self.variant == "tiered" and self.crop == "multiview":
            raise ValueError(
                "crop: multiview was released for variant: mini alone; set crop: center"
            )
        return self
