"""The outer loop's optimiser: torch.optim, with clipping and the TF1 eps convention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from metaforge.contracts import Params
from metaforge.recipe.schema import Optimizer as Settings

ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8


class OuterOptimizer:
    """Holds theta as leaf tensors and updates them in place from given gradients.

    ``extra`` are learned task-weighting parameters, updated by the same rule with their
    own learning rate and never clipped. Clipping is by value first, then each tensor by
    its norm. With ``eps_convention: tf1`` Adam computes
    ``p -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps)``: eps outside the bias
    correction, which equals torch's rule with ``eps / sqrt(1 - b2^t)`` at step t.
    """

    def __init__(
        self, params: Params, settings: Settings, extra: Params | None = None, extra_lr: float = 0.0
    ):
        self.settings = settings
        self.params = _leaves(params)
        self.extra = _leaves(extra or {})
        self.steps = 0
        #: Steps that theta's moments had seen before.
        self._carried = 0
        groups = [{"params": list(self.params.values()), "lr": settings.lr}]
        if self.extra:
            groups.append({"params": list(self.extra.values()), "lr": extra_lr})
        self._rule: torch.optim.Optimizer
        if settings.use == "adam":
            # one kernel for all tensors: with small ones the calls cost more than the work
            self._rule = torch.optim.Adam(groups, betas=ADAM_BETAS, eps=ADAM_EPS, fused=True)
        else:
            self._rule = torch.optim.SGD(groups, momentum=settings.momentum)

    def step(self, gradients: list[Tensor]) -> None:
        """One update; gradients come in the order of ``params``, then ``extra``."""
        self.steps += 1
        leaves = [*self.params.values(), *self.extra.values()]
        theta = self.clip(gradients[: len(self.params)])
        for leaf, gradient in zip(leaves, [*theta, *gradients[len(self.params) :]], strict=True):
            leaf.grad = gradient
        if self.settings.use == "adam" and self.settings.eps_convention == "tf1":
            for group, before in zip(self._rule.param_groups, (self._carried, 0), strict=False):
                seen = before + self.steps
                group["eps"] = ADAM_EPS / math.sqrt(1 - group["betas"][1] ** seen)
        self._rule.step()

    def clip(self, gradients: list[Tensor]) -> list[Tensor]:
        """Clip by value, then scale each tensor to at most ``clip_norm``."""
        return clipped(gradients, self.settings)

    def state(self) -> dict[str, Tensor]:
        """Everything a resumed run needs, as one flat dict of tensors (copies)."""
        flat = {f"params/{name}": value for name, value in self.params.items()}
        flat |= {f"extra/{name}": value for name, value in self.extra.items()}
        for index, entry in self._rule.state_dict()["state"].items():
            flat |= {
                f"rule/{index}/{key}": value
                for key, value in entry.items()
                if isinstance(value, Tensor)
            }
        flat["steps"] = torch.tensor(self.steps)
        return {name: value.detach().clone() for name, value in flat.items()}

    def restore(self, flat: dict[str, Tensor]) -> None:
        """The inverse of ``state``."""
        with torch.no_grad():
            for prefix, tensors in (("params", self.params), ("extra", self.extra)):
                for name, tensor in tensors.items():
                    tensor.copy_(flat[f"{prefix}/{name}"])
        self._restore_rule(flat)
        self.steps = int(flat["steps"])

    def carry_on(self, flat: dict[str, Tensor]) -> None:
        """Go on with another optimiser's moments and count of steps, at the values held here.

        ``flat`` is its ``state``. Those of theta alone: an arm's learned weighting may be
        another than that which was trained beside theta.
        """
        beyond = len(self.params)
        kept = {k: v for k, v in flat.items() if k.startswith("rule/") and _index(k) < beyond}
        self._restore_rule(kept)
        self._carried = int(flat.get("steps", 0))

    def _restore_rule(self, flat: dict[str, Tensor]) -> None:
        entries: dict[int, dict[str, Tensor]] = {}
        for name, value in flat.items():
            if name.startswith("rule/"):
                entries.setdefault(_index(name), {})[name.split("/")[2]] = value.clone()
        self._rule.load_state_dict({**self._rule.state_dict(), "state": entries})


def clipped(gradients: Sequence[Tensor], settings: Settings) -> list[Tensor]:
    """What ``OuterOptimizer.clip`` does, by the settings alone."""
    value, norm = settings.clip_value, settings.clip_norm
    if value is not None:
        gradients = [g.clamp(-value, value) for g in gradients]
    if norm is not None:
        gradients = [g * (norm / g.norm().clamp(min=norm)) for g in gradients]
    return list(gradients)


def moments(settings: Settings) -> tuple[str, ...]:
    """What the rule remembers of each tensor, by torch.optim's names."""
    if settings.use == "adam":
        return "exp_avg", "exp_avg_sq"
    return ("momentum_buffer",) if settings.momentum else ()


def _index(name: str) -> int:
    """The tensor that an entry ``rule/<index>/<key>`` is about."""
    return int(name.split("/")[1])


def _leaves(params: Params) -> Params:
    return {name: value.detach().clone().requires_grad_() for name, value in params.items()}
