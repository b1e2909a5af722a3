"""The inner algorithm ``unrolled``."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from metaforge import modules
from metaforge.components import Context
from metaforge.contracts import Model, Params
from metaforge.tasks import TaskShape
from metaforge.taskwise import Rows, Taskwise
from metaforge_unrolled import peer
from metaforge_unrolled.options import UnrolledOptions

#: torch.optim's class of each optimiser; higher has one for each.
RULES: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamax": torch.optim.Adamax,
    "adagrad": torch.optim.Adagrad,
    "adadelta": torch.optim.Adadelta,
    "asgd": torch.optim.ASGD,
    "rmsprop": torch.optim.RMSprop,
    "rprop": torch.optim.Rprop,
}


class Unrolled(Taskwise):
    """Inner optimisation by an optimiser of higher (Grefenstette et al. 2019, algorithm 1).

        Alg(theta, D) = theta_T,   theta_{t+1} = theta_t - u_t(g_1, ..., g_t),   theta_0 = theta

    with g_t the gradient at theta_t of the mean support loss (cross-entropy or squared error)
    and u_t the optimiser's rule, whose state starts afresh for each task. Order 2 differentiates
    through rule and gradients. At order 1 the whole update theta_T - theta is constant.

    The rules are torch.optim's, one excepted. higher's Adam keeps the convention of older
    versions of PyTorch and of TensorFlow 1, eps before the bias correction:

        u_t = lr sqrt(1 - b2^t) / (1 - b1^t) m_t / (sqrt(v_t) + eps)

    which is torch.optim.Adam's with eps / sqrt(1 - b2^t) at step t. A gradient that is exactly
    zero makes sqrt(v) steep without bound; there higher's Adam, Adagrad and RMSprop hold v
    constant. Rprop moves by the gradient's sign alone, so its order 2 equals its order 1.

    ``model`` is a ``Model``, drawn afresh by ``init``, or any ``nn.Module``, as ``maml`` takes.

    Raises ``PluginError`` as ``metaforge.modules.prepare`` does, and where higher is missing.
    """

    name: ClassVar[str] = "unrolled"
    options: UnrolledOptions

    def __init__(
        self, options: UnrolledOptions, context: Context | None = None, *, model: Model | nn.Module
    ):
        super().__init__(options, context)
        modules.refuse_other_models(model, self.name)
        self.model = model
        self.order, self.steps = options.order, options.steps
        self._make_rule = peer.optimizers().create_diff_optim

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        module, found = modules.prepare(
            self.model,
            shape,
            generator,
            self.context,
            who=self.name,
            allow_unused=self.options.allow_unused,
        )
        self.begin(module, shape, found.transductive)
        return modules.parameters(module)

    def run(
        self, params: Params, support: Rows, query_x: Tensor, steps: int
    ) -> tuple[Params, Tensor]:
        through = self.order == 2 and torch.is_grad_enabled()
        values = [
            value if through and value.requires_grad else value.detach().requires_grad_()
            for value in params.values()
        ]
        rule = self._fresh_rule(values, through)
        with torch.enable_grad():
            for _ in range(steps):
                theta = dict(zip(params, values, strict=True))
                loss = support.loss(functional_call(self.module, theta, (support.x,)))
                values = rule.step(loss, params=values)
        adapted = dict(zip(params, values, strict=True))
        if not through:
            adapted = {name: _moved(params[name], value) for name, value in adapted.items()}
        return adapted, functional_call(self.module, adapted, (query_x,))

    def _fresh_rule(self, values: list[Tensor], through: bool) -> Any:
        """higher's optimiser, its state empty; ``through`` keeps the graph of its steps."""
        options = self.options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of, the docstring says
            rule = self._make_rule(
                RULES[options.optimizer],
                {"lr": options.lr, **options.settings},
                params=values,
                track_higher_grads=through,
            )
        if options.optimizer == "adagrad":
            # torch counts steps in a float32 tensor, which would round the learning rate
            for state in rule.state[0].values():
                state["step"] = 0
        return rule

    def describe(self) -> dict[str, Any]:
        options = self.options
        found = {
            "optimizer": options.optimizer,
            "order": self.order,
            "steps": options.steps,
            "lr": options.lr,
            **options.settings,
            "implementation": "higher",
        }
        if options.optimizer == "adam":
            found["eps_convention"] = "tf1"
        return found


def _moved(start: Tensor, end: Tensor) -> Tensor:
    """``end``, as ``start`` plus a constant: the derivative in ``start`` is the identity."""
    return end.detach() + (start - start.detach())
