"""One task put through a learner of learn2learn, with theta from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaforge.contracts import Params
from metaforge.errors import PluginError
from metaforge.taskwise import Rows


class Episode(nn.Module):
    """Clone, adapt, predict, as learn2learn's documentation writes it.

    ``features`` come before the learner and do not adapt. Both own their parameters;
    ``functional_call`` lends them theta for one task, so that the clone's graph leads back to
    theta. ``names`` gives theta's name for each parameter, ``features.NAME`` or
    ``learner.NAME``; those that require no gradient are held constant.

    Raises ``PluginError`` if two parameters have one name.
    """

    def __init__(self, features: nn.Module, learner: nn.Module, names: Mapping[str, str]):
        super().__init__()
        self.features, self.learner = features, learner
        learned = [name for name, value in self.named_parameters() if value.requires_grad]
        #: {theta's name: the parameter's own}
        self.names = {names[name]: name for name in learned}
        if len(self.names) < len(learned):
            raise PluginError(
                "learn2learn: the model's parameters named 'lr...' or 'transform...' clash with "
                "those that the algorithm learns; rename its layers"
            )

    def theta(self) -> Params:
        """Copies of the values that theta starts from."""
        return {name: self.get_parameter(own).detach().clone() for name, own in self.names.items()}

    def run(
        self,
        params: Params,
        support: Rows,
        query_x: Tensor,
        steps: int,
        *,
        second_order: bool | None,
    ) -> tuple[Params, Tensor]:
        """theta after ``steps`` steps on the support, and outputs [Q, o] on ``query_x``.

        Differentiable in theta where gradients are enabled; without, no graph is kept.
        ``second_order`` None leaves the order to the learner.
        """
        keep_graph = torch.is_grad_enabled()
        lent = {}
        for name, own in self.names.items():
            value = params[name]
            if not (keep_graph and value.requires_grad):
                value = value.detach().requires_grad_(own.startswith("learner."))
            lent[own] = value
        first_order = None if second_order is None else not (second_order and keep_graph)
        with torch.enable_grad():  # learn2learn differentiates the support loss itself
            state, outputs = functional_call(self, lent, (support, query_x, steps, first_order))
        adapted = {name: state.get(own, lent[own]) for name, own in self.names.items()}
        if keep_graph:
            return adapted, outputs
        return {name: value.detach() for name, value in adapted.items()}, outputs.detach()

    def forward(
        self, support: Rows, query_x: Tensor, steps: int, first_order: bool | None
    ) -> tuple[Params, Tensor]:
        """The clone's parameters, named as here, and its outputs."""
        learner: Any = cast(Any, self.learner).clone()
        if first_order is not None:
            learner.first_order = first_order
        x = self.features(support.x)
        for _ in range(steps):
            learner.adapt(support.loss(learner(x)))
        adapted = {f"learner.{name}": value for name, value in learner.named_parameters()}
        return adapted, learner(self.features(query_x))
