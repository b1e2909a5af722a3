"""One outer loop for both phases: gradients, their checks, and the policy for NaN.

Meta-training and conditioning differ in their objective alone, so the rules of a step
live here once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from metaforge.contracts import InnerAlgorithm, Params
from metaforge.diagnosis import TaskLosses, why_not_finite
from metaforge.errors import NumericError, PluginError
from metaforge.optimizers import OuterOptimizer
from metaforge.precision import steps
from metaforge.ranks import ALONE, Ranks

#: Steps between reads of the device-side NaN flag where a read would stall the device.
CHECK_EVERY = 25


@dataclass(frozen=True)
class StepLoss:
    """The objective of one step, a scalar, and the losses of tasks that it is made of.

    Where ranks share a step, one rank's part of them: the objective is the sum of the parts.
    """

    value: Tensor
    parts: tuple[TaskLosses, ...]


#: (step, theta, learned weighting parameters) -> the objective
Objective = Callable[[int, Params, Params], StepLoss]


class OuterLoop:
    """Runs steps of an objective from a given state; steps are a function of their index.

    A loss that is not finite is found by a flag kept on the device and read every
    ``check_every`` steps (each step on a CPU, where reading is free). The steps since the
    last good state are then replayed one by one, so that the message can name the task,
    the inner step and the tensor (``metaforge.diagnosis``). ``on_nan="skip"`` leaves out the
    bad step and counts it.

    Where ``ranks`` share a step, every one of them checks and takes the step of the summed
    gradients; ``whole`` is the objective of all tasks on one rank, which a diagnosis looks at.
    """

    def __init__(
        self,
        optimizer: OuterOptimizer,
        inner: InnerAlgorithm,
        objective: Objective,
        *,
        on_nan: str = "stop",
        allow_unused: bool = False,
        where: str = "",
        check_every: int | None = None,
        ranks: Ranks = ALONE,
        whole: Objective | None = None,
        precision: str = "float32",
    ):
        self.optimizer, self.inner, self.objective = optimizer, inner, objective
        self.on_nan, self.allow_unused, self.where = on_nan, allow_unused, where
        self.ranks, self.whole, self.precision = ranks, whole, precision
        self.step = 0
        self.skipped = 0
        self.last: StepLoss | None = None
        reading_is_free = next(iter(optimizer.params.values())).device.type == "cpu"
        self.check_every = check_every or (1 if reading_is_free else CHECK_EVERY)
        self._checked_gradients = False

    def advance(self, until: int) -> None:
        """Run up to (not including) step ``until``."""
        with steps(self.precision, self._device()):
            while self.step < until:
                stop = min(until, self.step + self.check_every)
                if not self._burst(stop) and self.check_every > 1:
                    self._replay(stop)

    def _burst(self, stop: int) -> bool:
        """Steps without a read in between; False if one of them was not finite."""
        if self.check_every == 1:
            self._one(self.step, check=True)
            self.step += 1
            return True
        self._snapshot = (self.optimizer.state(), self.step)
        finite = torch.ones((), dtype=torch.bool, device=self._device())
        for step in range(self.step, stop):
            finite = finite & self._one(step, check=False)
        self.step = stop
        return bool(finite)

    def _replay(self, stop: int) -> None:
        state, self.step = self._snapshot
        self.optimizer.restore(state)
        while self.step < stop:
            self._one(self.step, check=True)
            self.step += 1

    def _one(self, step: int, *, check: bool) -> Tensor:
        """One step; whether it was finite. Without ``check`` nothing is read from the device."""
        params, extra = self.optimizer.params, self.optimizer.extra
        try:
            loss = self.objective(step, params, extra)
        except BaseException as error:
            error.add_note(f"{self.where}, step {step}")
            raise
        penalty = self.inner.penalty(params) if self.ranks.first else None
        value = loss.value if penalty is None else loss.value + penalty
        total, gradients = self._gradients(value)
        self.last = StepLoss(total, tuple(part.detached() for part in loss.parts))
        finite = torch.isfinite(
            torch.stack([self.last.value, *torch._foreach_norm(gradients)]).sum()
        )
        if check and not finite:
            self._not_finite(step, gradients)
        else:
            self.optimizer.step(gradients)
        return finite

    def _gradients(self, value: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The objective and its gradients, summed over ranks."""
        leaves = {
            **self.optimizer.params,
            **{f"weighting.{name}": tensor for name, tensor in self.optimizer.extra.items()},
        }
        if not value.requires_grad:
            raise PluginError(self._cut_graph(list(leaves)))
        found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        own = [
            torch.zeros_like(leaf) if gradient is None else gradient
            for leaf, gradient in zip(leaves.values(), found, strict=True)
        ]
        total, *gradients = self.ranks.total([value.detach(), *own])
        if not self._checked_gradients:
            reached = torch.tensor([float(gradient is not None) for gradient in found])
            (reached,) = self.ranks.total([reached])
            everywhere = zip(leaves, gradients, reached.tolist(), strict=True)
            self._check_gradients({name: g if hit else None for name, g, hit in everywhere})
            self._checked_gradients = True
        return total, gradients

    def _check_gradients(self, found: dict[str, Tensor | None]) -> None:
        """After the first step: theta must be reached, by every tensor unless allowed."""
        theta = {name: found[name] for name in self.optimizer.params}
        if all(gradient is None or not bool(gradient.any()) for gradient in theta.values()):
            raise PluginError(self._cut_graph(list(theta)))
        unused = [name for name, gradient in theta.items() if gradient is None]
        if unused and not self.allow_unused:
            raise PluginError(
                f"{self.where}: the loss does not reach the parameter{'s' * (len(unused) > 1)} "
                f"{', '.join(unused)} of {_name(self.inner)}; a frozen or unused parameter is "
                "accepted with allow_unused: true"
            )

    def _cut_graph(self, names: list[str]) -> str:
        return (
            f"{self.where}: after the first step every outer gradient is none or zero "
            f"({', '.join(names[:4])}{', ...' if len(names) > 4 else ''}); {_name(self.inner)} "
            "cuts the graph between its parameters and its losses (an in-place change, .data, "
            "detach or deepcopy does that)"
        )

    def _not_finite(self, step: int, gradients: list[Tensor]) -> None:
        assert self.last is not None
        if self.on_nan == "skip":
            self.skipped += 1
            return
        params = self.optimizer.params
        named = dict(zip([*params, *self.optimizer.extra], gradients, strict=True))
        parts = self.last.parts
        if self.whole is not None and self.ranks.size > 1:
            parts = self.whole(step, params, self.optimizer.extra).parts
        reason = why_not_finite(self.inner, params, self.last.value, parts, named)
        raise NumericError(f"{self.where}, step {step}: {reason}")

    def _device(self) -> torch.device:
        return next(iter(self.optimizer.params.values())).device


def _name(inner: InnerAlgorithm) -> str:
    return f"inner algorithm {type(inner).__module__}.{type(inner).__qualname__}"
