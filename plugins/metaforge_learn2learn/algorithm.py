"""The inner algorithm ``learn2learn``."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from metaforge import modules
from metaforge.components import Context
from metaforge.contracts import Model, Params
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.taskwise import Rows, Taskwise
from metaforge_learn2learn import learner, peer
from metaforge_learn2learn.options import Learn2learnOptions

#: Options that shape a learner, so that one given ready-made has its own.
_SHAPING = ("algorithm", "adapt", "lr", "transform")


class Learn2learn(Taskwise):
    """Gradient steps from a learned start, by learn2learn's learners (Arnold et al. 2020).

        theta_{t+1} = theta_t - update(grad L(theta_t, D)),   Alg(theta, D) = theta_T

    with L the mean cross-entropy or squared error over the support rows, and as update of a
    parameter's gradient g

        MAML      lr g                (Finn et al. 2017, algorithm 1)
        MetaSGD   a * g, entrywise    (Li et al. 2017, equation 2)
        GBML      lr T(g)             (T linear: meta-curvature, Park and Oliva 2019, or
                                       Kronecker-factored, Arnold, Iqbal and Sha 2019)

    theta holds the model's parameters under their own names, and what the update learns:
    ``lr.NAME`` is a, shaped as the parameter NAME, and ``transform.NAME.PART`` a matrix of T.
    ``adapt: head`` moves only the last affine layer (ANIL, Raghu et al. 2020, section 4); the
    other parameters are learned, and the same for every task. At order 1 the gradients g are
    constant; a and T still learn.

    ``model`` is a ``Model``, drawn afresh by ``init``; any ``nn.Module``, as ``maml`` takes; or,
    from Python, a ready learner: an ``nn.Module`` with learn2learn's ``clone()`` and
    ``adapt(loss)``. A learner brings its own algorithm, rates and ``first_order`` (order 1),
    and theta has its parameters' names.

    Raises ``PluginError`` as ``metaforge.modules.prepare`` does; where learn2learn is missing;
    for a model that does not end in an affine layer (``adapt: head``); for parameters that
    share storage (MetaSGD) or have 3 or more than 4 axes (GBML); for a learner that comes with
    options it would not read.
    """

    name: ClassVar[str] = "learn2learn"
    options: Learn2learnOptions

    def __init__(
        self,
        options: Learn2learnOptions,
        context: Context | None = None,
        *,
        model: Model | nn.Module,
    ):
        super().__init__(options, context)
        modules.refuse_other_models(model, self.name)
        self.model = model
        self.given = learner.is_learner(model)
        self.order, self.steps = options.order, options.steps
        if self.given:
            self.order = self._own_order()
        else:
            peer.load()

    def _own_order(self) -> Any:
        """The order of a learner that was given, which its options must not gainsay."""
        title, stated = type(self.model).__name__, self.options.model_fields_set
        ignored = [name for name in _SHAPING if name in stated]
        if ignored:
            raise PluginError(
                f"learn2learn: {title} is a ready learner with settings of its own; leave out "
                f"{', '.join(ignored)}"
            )
        first_order = getattr(self.model, "first_order", None)
        if first_order is None:
            return self.options.order
        order = 1 if first_order else 2
        if "order" in stated and order != self.options.order:
            raise PluginError(
                f"learn2learn: order: {self.options.order}, but {title} has first_order = "
                f"{bool(first_order)}; set it there, and leave out order"
            )
        return order

    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        context, who, allowed = self.context, self.name, self.options.allow_unused
        if self.given:
            module = modules.build(self.model, shape, generator, context, who=who)
            found = modules.probe(module, shape, who=who)
            self._episode = learner.adopt(module, shape, allowed)
        else:
            module, found = modules.prepare(
                self.model, shape, generator, context, who=who, allow_unused=allowed
            )
            self._episode = learner.make(module, shape, self.options)
        self.begin(module, shape, found.transductive)
        return self._episode.theta()

    def run(
        self, params: Params, support: Rows, query_x: Tensor, steps: int
    ) -> tuple[Params, Tensor]:
        # a learner that was given is left as it is: its first_order may mean something else
        second_order = None if self.given else self.order == 2
        return self._episode.run(params, support, query_x, steps, second_order=second_order)

    @torch.no_grad()
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        module = super().export(params, support)
        x = support.support_x
        if self.given and not torch.allclose(module(x[0]), self.predict(params, support, x)[0]):
            raise PluginError(
                f"learn2learn: {type(module).__name__} cannot be exported: what it adapted is "
                "not in the named_parameters() of its clone"
            )
        return module

    def describe(self) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {"order": self.order, "steps": self.steps}
        if self.given:
            return {"algorithm": type(self.model).__name__, **found}
        found |= {"algorithm": options.algorithm, "adapt": options.adapt, "lr": options.lr}
        if options.algorithm == "GBML":
            found["transform"] = options.transform or "meta_curvature"
        return {**found, "implementation": "learn2learn"}
