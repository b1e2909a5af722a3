"""What the tests of maml share: float64 algorithms on small models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from metaforge.components import Context
from metaforge.contracts import Model
from metaforge.tasks import TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions
from metaforge_models.conv import Conv4, ResNet12
from metaforge_models.dense import Linear, Mlp
from metaforge_models.options import Conv4Options, LinearOptions, MlpOptions, ResNet12Options

CONTEXT = Context(dtype="float64")

#: 3-way 2-shot: S = 6 rows; inputs wider and narrower than that, images, and regression.
WIDE = TaskShape("classification", (9,), 3, shots=2, queries=2)
NARROW = TaskShape("classification", (4,), 3, shots=2, queries=2)
IMAGES = TaskShape("classification", (1, 16, 16), 3, shots=2, queries=2)
REAL = TaskShape("regression", (9,), 2, shots=5, queries=6)
REAL_NARROW = TaskShape("regression", (1,), 1, shots=5, queries=6)
REAL_IMAGES = TaskShape("regression", (1, 16, 16), 2, shots=4, queries=4)

MODELS: dict[str, Model] = {
    "linear": Linear(LinearOptions()),
    "linear without bias": Linear(LinearOptions(bias=False)),
    "mlp": Mlp(MlpOptions(hidden=(5,))),
    "mlp of two": Mlp(MlpOptions(hidden=(4, 3))),
    "conv4": Conv4(Conv4Options(filters=3)),
    "conv4 batch norm": Conv4(Conv4Options(filters=3, norm="batch", transductive=True)),
    "resnet12": ResNet12(ResNet12Options(widths=(2, 3))),
}


class Tanh(Model):
    """A module that no closed form serves."""

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        module = nn.Sequential(
            nn.Linear(shape.input_shape[0], 4), nn.Tanh(), nn.Linear(4, shape.outputs)
        )
        for value in module.parameters():
            nn.init.uniform_(value, -0.5, 0.5, generator=generator)
        return module


class PartlyUsed(nn.Module):
    """9 inputs, 3 outputs, float64; one layer is not used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.spare, self.output = nn.Linear(9, 4), nn.Linear(2, 2), nn.Linear(4, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.body(x)))


def maml(model: str | Model | nn.Module, *, context: Context = CONTEXT, **options: Any) -> Maml:
    ready = MODELS[model] if isinstance(model, str) else model
    return Maml(MamlOptions(**{"lr": 0.4, **options}), context, model=ready)


def started(
    model: str | Model | nn.Module, shape: TaskShape, **options: Any
) -> tuple[Maml, dict[str, torch.Tensor]]:
    """An initialised float64 algorithm and its parameters, ready for gradients."""
    algorithm = maml(model, **options)
    return algorithm, fresh_parameters(algorithm, shape)
