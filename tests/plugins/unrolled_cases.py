"""What the tests of unrolled share: float64 algorithms on small models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaforge.contracts import Model, Params
from metaforge.optional import HIGHER
from metaforge.tasks import TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters
from metaforge_unrolled.algorithm import Unrolled
from metaforge_unrolled.options import UnrolledOptions
from tests.plugins.maml_cases import CONTEXT, MODELS

NEEDS_HIGHER = pytest.mark.skipif(bool(HIGHER.missing), reason="higher is not installed")

#: Every optimiser, plain and with each of its settings.
RULES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "sgd, momentum": {"momentum": 0.9},
    "sgd, dampened": {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
    "sgd, Nesterov": {"momentum": 0.9, "nesterov": True},
    "adam": {"optimizer": "adam"},
    "adam, betas": {"optimizer": "adam", "betas": (0.5, 0.9), "eps": 1e-3},
    "adam, amsgrad": {"optimizer": "adam", "amsgrad": True, "weight_decay": 0.1},
    "adamax": {"optimizer": "adamax"},
    "adamax, betas": {"optimizer": "adamax", "betas": (0.5, 0.9), "eps": 1e-3},
    "adagrad": {"optimizer": "adagrad"},
    "adagrad, decay": {"optimizer": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.3},
    "adadelta": {"optimizer": "adadelta"},
    "adadelta, rho": {"optimizer": "adadelta", "rho": 0.5, "eps": 1e-3},
    "asgd": {"optimizer": "asgd"},
    "asgd, lambd": {"optimizer": "asgd", "lambd": 0.1, "alpha": 0.3},
    "rmsprop": {"optimizer": "rmsprop"},
    "rmsprop, momentum": {"optimizer": "rmsprop", "momentum": 0.5, "alpha": 0.9, "eps": 1e-3},
    "rprop": {"optimizer": "rprop"},
    "rprop, etas": {"optimizer": "rprop", "etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1)},
}


def made(model: str | Model | nn.Module = "mlp", **options: Any) -> Unrolled:
    ready = MODELS[model] if isinstance(model, str) else model
    return Unrolled(UnrolledOptions(**{"lr": 0.05, **options}), CONTEXT, model=ready)


def started(
    model: str | Model | nn.Module, shape: TaskShape, **options: Any
) -> tuple[Unrolled, Params]:
    """An initialised float64 algorithm, and its parameters ready for gradients."""
    algorithm = made(model, **options)
    return algorithm, fresh_parameters(algorithm, shape)


#: Three tokens of width 4.
TOKENS = TaskShape("classification", (3, 4), 3, shots=2, queries=2)


class Attention(nn.Module):
    """A transformer's layer on tokens, and an affine head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.output = nn.Linear(12, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layer(x).flatten(1))
