"""Options of the backbones ``timm`` and ``torchvision``."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from metaforge.options import Options


class PretrainedOptions(Options):
    model: str = Field(description="the network's name there, such as resnet18")
    weights: Path | Literal["none"] | None = Field(
        None,
        description="a file of its weights, safetensors or .pth (tensors alone are read of it); "
        "none: drawn at random",
    )
    download: bool = Field(
        False, description="fetch the weights that the package names, where no file is given"
    )
    size: PositiveInt | None = Field(
        None, description="pixels along each side; default: those that the network was trained on"
    )

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.weights is None and not self.download:
            raise ValueError(
                "no weights: give weights, a file; or say download: true to fetch them, or "
                "weights: none for a network that has learned nothing"
            )
        if self.weights is not None and self.download:
            raise ValueError("weights and download: give one of them, weights come from one place")
        return self
