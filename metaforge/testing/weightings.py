"""The laws of task weightings, as checks a plugin's own tests can call.

Each ``check_*`` takes a weighting, a gram operator of the bank and, where it matters,
the bank's groups; it raises ``AssertionError`` naming the law that is broken.
``check_weighting`` runs them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metaforge.contracts import GramOperator, TaskWeighting, Tree
from metaforge.errors import NumericError
from metaforge.scoring import keep
from metaforge.tasks import TaskKind
from metaforge.testing.law import Law, check_all

#: Of equalities, relative to the largest weight. A solve is only as good as condition
#: number x rounding: give ``check_weighting`` a larger one for a nearly singular bank.
TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class Bank(GramOperator):
    """A bank given by an explicit kernel matrix, or by features F with ``K = F F^T``."""

    matrix: Tensor
    bank_features: Tensor | None = None
    bank_signatures: Tensor | None = None
    kernel_name: str = "explicit"

    @classmethod
    def of_features(cls, features: Tensor) -> Bank:
        return cls(features @ features.T, features, features)

    @property
    def n_tasks(self) -> int:  # type: ignore[override]
        return len(self.matrix)

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return self.matrix.to(dtype, copy=True)

    def block(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor:
        return self.matrix[rows][:, columns]

    def diag(self) -> Tensor:
        return self.matrix.diagonal()

    def products(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        return [self.matrix @ vector for vector in vectors]

    def features(self) -> Tensor | None:
        return self.bank_features

    def signatures(self) -> Tensor:
        return self.matrix if self.bank_signatures is None else self.bank_signatures

    def take(self, rows: Tensor) -> Bank:
        """The bank whose task i is this one's task ``rows[i]``."""
        features, signatures = self.bank_features, self.bank_signatures
        return Bank(
            self.matrix[rows][:, rows],
            None if features is None else features[rows],
            None if signatures is None else signatures[rows],
            self.kernel_name,
        )


@dataclass(frozen=True, eq=False)
class Case:
    """A bank and T targets: ``cross`` [N, T] and ``own`` [T] as ``weights`` takes them."""

    bank: Bank
    cross: Tensor
    own: Tensor
    groups: Tensor
    kind: TaskKind = "classification"

    def take(self, rows: Tensor) -> Case:
        """The same targets before a reordered or repeated bank."""
        cross, groups = self.cross[rows], self.groups[rows]
        return Case(self.bank.take(rows), cross, self.own, groups, self.kind)


def gaussian_case(n_tasks: int = 40, n_targets: int = 6, groups: int = 0) -> Case:
    """A well-conditioned bank of random tasks, seen through a Gaussian kernel."""
    random = torch.Generator().manual_seed(0)
    tasks = torch.randn(n_tasks + n_targets, 3, generator=random, dtype=torch.float64)
    kernel = torch.exp(-torch.cdist(tasks, tasks).square())
    numbers = torch.arange(n_tasks)
    return Case(
        Bank(kernel[:n_tasks, :n_tasks].contiguous(), bank_signatures=tasks[:n_tasks]),
        kernel[:n_tasks, n_tasks:].contiguous(),
        torch.ones(n_targets, dtype=torch.float64),
        numbers % groups if groups else torch.full((n_tasks,), -1),
    )


def signed_case(n_tasks: int = 40, n_targets: int = 6) -> Case:
    """A bank seen through a linear kernel, whose values have both signs."""
    random = torch.Generator().manual_seed(1)
    tasks = torch.randn(n_tasks + n_targets, 5, generator=random, dtype=torch.float64)
    bank, targets = tasks[:n_tasks], tasks[n_tasks:]
    groups = torch.full((n_tasks,), -1)
    return Case(Bank.of_features(bank), bank @ targets.T, targets.square().sum(1), groups)


def check_weighting(weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE) -> None:
    """Every law."""
    check_all(weighting_laws(weighting, case, tolerance))


def weighting_laws(weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE) -> list[Law]:
    laws = [
        Law("shape", lambda: check_shape(weighting, case)),
        Law("inputs untouched", lambda: check_untouched(weighting, case)),
        Law("report", lambda: check_report(weighting, case)),
        Law("declarations", lambda: check_declarations(weighting, case, tolerance)),
        Law("permutation", lambda: check_permutation(weighting, case, tolerance)),
        Law("columns", lambda: check_columns(weighting, case, tolerance)),
        Law("identical tasks", lambda: check_identical_tasks(weighting, case, tolerance)),
        Law("more kept than there are", lambda: check_keeps_all(weighting, case)),
    ]
    if weighting.target_specific:
        laws.append(Law("recalls itself", lambda: check_recalls_itself(weighting, case)))
    if weighting.learned:
        laws.append(Law("learned", lambda: check_learned(weighting, case)))
    return laws


def weigh(weighting: TaskWeighting, case: Case) -> Tensor:
    """[N, T]: fit on the bank, then the targets' weights."""
    return weighting.weights(_fit(weighting, case), case.cross, case.own)


def check_shape(weighting: TaskWeighting, case: Case) -> None:
    """``[N, T]``, finite, float64."""
    weights = weigh(weighting, case)
    assert weights.shape == case.cross.shape, f"shape: [N, T], not {list(weights.shape)}"
    assert weights.dtype == torch.float64, f"dtype: float64, not {weights.dtype}"
    assert torch.isfinite(weights).all(), "finite"


def check_untouched(weighting: TaskWeighting, case: Case) -> None:
    """The bank's matrix and v(D) stay as they are."""
    matrix, cross = case.bank.matrix.clone(), case.cross.clone()
    weigh(weighting, case)
    assert torch.equal(case.bank.matrix, matrix), "inputs untouched: the bank's matrix changed"
    assert torch.equal(case.cross, cross), "inputs untouched: cross changed"


def check_report(weighting: TaskWeighting, case: Case) -> None:
    """``report`` gives numbers by name."""
    found = weighting.report(_fit(weighting, case))
    for name, value in found.items():
        assert isinstance(value, float | int), f"report: {name} is {value!r}, expected a number"


def check_declarations(weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE) -> None:
    """``sums_to_one``, ``may_be_negative`` and ``target_specific`` say what is so."""
    weights = weigh(weighting, case)
    if weighting.sums_to_one:
        _close(
            weights.sum(0),
            torch.ones_like(case.own),
            tolerance,
            "sums_to_one: every column sums to 1",
        )
    if not weighting.may_be_negative:
        assert (weights >= 0).all(), "may_be_negative: false, but there are negative weights"
    if not weighting.target_specific:
        other = Case(case.bank, case.cross.flip(0), case.own, case.groups)
        law = "target_specific: false, so every target has the same weights"
        _close(weigh(weighting, other), weights, tolerance, law)
        _close(weights[:, :1].expand_as(weights), weights, tolerance, law)


def check_permutation(weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE) -> None:
    """Permuting the bank permutes the weights."""
    order = torch.randperm(len(case.groups), generator=torch.Generator().manual_seed(1))
    turned = weigh(weighting, case.take(order))
    law = "permutation: the rows follow the bank's order"
    _close(turned, weigh(weighting, case)[order], tolerance, law)


def check_columns(weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE) -> None:
    """A target's weights do not depend on the other targets."""
    state = _fit(weighting, case)
    together = weighting.weights(state, case.cross, case.own)
    columns = range(len(case.own))
    alone = [weighting.weights(state, case.cross[:, [t]], case.own[[t]]) for t in columns]
    _close(torch.cat(alone, 1), together, tolerance, "columns: each target is weighed by itself")


def check_identical_tasks(
    weighting: TaskWeighting, case: Case, tolerance: float = TOLERANCE
) -> None:
    """Bank tasks that are the same have the same weight."""
    numbers = torch.arange(len(case.groups))
    doubled = case.take(torch.cat([numbers, numbers[:5]]))
    weights = weigh(weighting, doubled)
    _close(weights[-5:], weights[:5], tolerance, "identical tasks: equal weights")


def check_keeps_all(weighting: TaskWeighting, case: Case) -> None:
    """With M above N the engine keeps every bank task, and has a sum to normalise by."""
    weights = weigh(weighting, case)
    try:
        ids, kept = keep(weights, len(weights) + 1)
    except NumericError as error:
        raise AssertionError(f"M >= N: nothing to keep: {error}") from error
    assert ids.shape == (len(case.own), len(weights)), "M >= N: keeps all"
    _close(kept.sum(1), torch.ones_like(case.own), TOLERANCE, "M >= N: kept weights sum to 1")


def check_recalls_itself(weighting: TaskWeighting, case: Case) -> None:
    """A target that is a bank task ranks that task first."""
    matrix = case.bank.matrix
    itself = Case(case.bank, matrix, matrix.diagonal(), case.groups)
    first = weigh(weighting, itself).argmax(0)
    assert torch.equal(first, torch.arange(len(matrix))), "a bank task as target ranks itself first"


def check_learned(weighting: TaskWeighting, case: Case) -> None:
    """``combine`` is differentiable: in its parameters and in the losses it matches finite
    differences, every visited parameter gets a gradient, and no input is changed."""
    state = _fit(weighting, case)
    ids = torch.arange(len(case.groups))
    losses = torch.linspace(0.2, 3, len(ids), dtype=torch.float64).requires_grad_()
    parameters = {
        name: (value.double() + 0.1).requires_grad_()
        for name, value in weighting.parameters(state).items()
    }
    assert parameters, "learned: parameters(state) is not empty"
    names, leaves = list(parameters), list(parameters.values())

    def objective(losses: Tensor, *values: Tensor) -> Tensor:
        given = dict(zip(names, values, strict=True))
        return weighting.combine(given, losses, ids, state)

    value = objective(losses, *leaves)
    assert value.shape == (), "combine: a scalar"
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    for name, gradient in zip(names, gradients, strict=True):
        assert gradient is not None, f"combine: depends on {name}"
        assert gradient.ne(0).all(), f"combine: every entry of {name} gets a gradient"
    assert torch.autograd.gradcheck(objective, (losses, *leaves), raise_exception=False), (
        "combine: its gradient matches finite differences"
    )


def _fit(weighting: TaskWeighting, case: Case) -> Tree:
    bank = case.bank if weighting.needs_gram else None
    return weighting.fit(bank, case.groups, kind=case.kind)


def _close(found: Tensor, expected: Tensor, tolerance: float, law: str) -> None:
    scale = float(expected.abs().max()) or 1.0
    worst = float((found - expected).abs().max()) / scale
    assert worst <= tolerance, f"{law}; off by {worst:.2g} of the largest"
