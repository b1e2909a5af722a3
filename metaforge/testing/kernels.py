"""The laws of task kernels, as checks a plugin's own tests can call.

Each ``check_*`` takes a fitted kernel and raises ``AssertionError`` naming the law it
breaks. ``check_kernel`` runs them all.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from metaforge.contracts import TaskKernel
from metaforge.gram import shown
from metaforge.tasks import TaskBatch
from metaforge.testing.law import Law, check_all


def check_kernel(make: Callable[[], TaskKernel], tasks: TaskBatch) -> None:
    """Every law, for a kernel made by ``make()`` and fitted on ``tasks`` (four or more)."""
    check_all(kernel_laws(make, tasks))


def kernel_laws(make: Callable[[], TaskKernel], tasks: TaskBatch) -> list[Law]:
    """Every law; the kernel is made and fitted when the first is checked."""

    @cache
    def kernel() -> TaskKernel:
        return fitted(make, tasks)

    @cache
    def signatures() -> Tensor:
        return kernel().signature(shown(tasks, kernel()))

    def on_bank(name: str, check: Callable[..., None], *others: Callable[[], Tensor]) -> Law:
        def law() -> None:
            check(kernel(), BANKS[name](signatures()), *(other() for other in others))

        return Law(f"{_NAMES[check]}, bank: {name}", law)

    laws = [
        Law("signature", lambda: check_signature(kernel(), tasks)),
        Law("order of samples", lambda: check_sample_order(kernel(), tasks)),
        Law("padding", lambda: check_padding(kernel(), tasks)),
        Law("numbering of classes", lambda: check_label_numbering(kernel(), tasks)),
        Law("what it reads", lambda: check_reads(kernel(), tasks)),
    ]
    for name in BANKS:
        laws.append(on_bank(name, check_gram, signatures))
        laws.append(on_bank(name, check_columns, signatures))
        laws.append(on_bank(name, check_positive_semidefinite))
    laws.append(Law("deterministic", lambda: check_deterministic(make, tasks)))
    laws.append(Law("picklable", lambda: check_picklable(kernel(), tasks)))
    return laws


def fitted(make: Callable[[], TaskKernel], tasks: TaskBatch) -> TaskKernel:
    """A new kernel, fitted as the engine does it, with a fixed generator."""
    kernel = make()
    kernel.fit(tasks, torch.Generator().manual_seed(0))
    return kernel


def _repeated(signatures: Tensor) -> Tensor:
    return signatures[torch.arange(2 * len(signatures)) % len(signatures)]


def _between(signatures: Tensor) -> Tensor:
    """Sixty points between the signatures, at all distances up to theirs."""
    random = torch.Generator().manual_seed(3)
    shares = torch.rand(60, len(signatures), generator=random, dtype=torch.float64) ** 4
    return (shares / shares.sum(1, keepdim=True)).to(signatures.device) @ signatures


def _near(signatures: Tensor) -> Tensor:
    return signatures[:1] * (1 + 1e-9 * torch.arange(8.0).double()[:, None])


#: Banks that break careless kernels, made of ordinary signatures [n, p].
BANKS: dict[str, Callable[[Tensor], Tensor]] = {
    "ordinary": lambda signatures: signatures,
    "in between": _between,
    "one task": lambda signatures: signatures[:1],
    "duplicates": _repeated,
    "all equal": lambda signatures: signatures[:1].expand(8, -1).contiguous(),
    "almost equal": _near,
    "scaled up": lambda signatures: 1e6 * signatures,
    "scaled down": lambda signatures: 1e-6 * signatures,
    "far from the origin": lambda signatures: signatures + 1e4,
}


def check_signature(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """Finite float64 rows, one a task, that do not depend on the batch they are in."""
    before = tasks.support_x.clone()
    together = kernel.signature(shown(tasks, kernel))
    assert torch.equal(tasks.support_x, before), "signature: tasks are left as they are"
    assert together.dtype == torch.float64, f"signature: float64, not {together.dtype}"
    assert together.shape[0] == len(tasks), "signature: one row a task"
    assert torch.isfinite(together).all(), "signature: finite"
    alone = torch.cat(
        [kernel.signature(shown(tasks[i : i + 1], kernel)) for i in range(len(tasks))]
    )
    _close(alone, together, "signature: a task's row does not depend on the batch")


def check_sample_order(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """A signature does not depend on the order of a task's samples."""
    random = torch.Generator().manual_seed(2)
    count = tasks.support_y.shape[1]
    orders = [torch.arange(count).flip(0), *(torch.randperm(count, generator=random) for _ in "ab")]
    for order in orders:
        turned = replace(
            tasks,
            support_x=tasks.support_x[:, order],
            support_y=tasks.support_y[:, order],
            support_mask=tasks.support_mask[:, order],
        )
        _same_signature(kernel, tasks, turned, "the order of samples does not matter")


def check_padding(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """Rows that the mask leaves out do not count, whatever they hold: NaN here, which a product
    with the mask would let through."""

    def padded(value: Tensor, fill: float) -> Tensor:
        return torch.cat([value, torch.full_like(value[:, :2], fill)], 1)

    longer = replace(
        tasks,
        support_x=padded(tasks.support_x, torch.nan),
        support_y=padded(tasks.support_y, 0),
        support_mask=padded(tasks.support_mask, 0),
    )
    _same_signature(kernel, tasks, longer, "masked samples do not count")


def check_label_numbering(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """In classification, renumbering a task's classes changes nothing."""
    if not tasks.is_regression:
        numbers = torch.arange(tasks.outputs)
        swapped = numbers.clone()
        swapped[:2] = swapped[:2].flip(0)
        for renumbered in (numbers.roll(-1), swapped):
            turned = replace(tasks, support_y=renumbered[tasks.support_y])
            _same_signature(kernel, tasks, turned, "the numbering of classes does not matter")


def check_reads(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """Under ``reads = "support"`` the queries are not read, though they be there; under
    ``"all"`` they are."""
    assert tasks.query_x is not None, "check_reads needs tasks with queries"
    other = replace(tasks, query_x=3 - 2 * tasks.query_x)
    equal = torch.equal(kernel.signature(tasks), kernel.signature(other))
    if kernel.reads == "support":
        assert equal, "reads: support, but the signature depends on the queries"
        without = kernel.signature(tasks.without_query())
        assert torch.equal(without, kernel.signature(tasks)), "reads: support means no queries"
    else:
        assert not equal, "reads: all, but the signature does not depend on the queries"


def check_gram(kernel: TaskKernel, a: Tensor, b: Tensor) -> None:
    """Finite float64 ``[n, m]``, symmetric, with the diagonal and features it declares."""
    gram = kernel.gram(a, b)
    assert gram.dtype == torch.float64, f"gram: float64, not {gram.dtype}"
    assert gram.shape == (len(a), len(b)), f"gram: [n, m], not {list(gram.shape)}"
    assert torch.isfinite(gram).all(), "gram: finite"
    _close(gram, kernel.gram(b, a).T, "gram: symmetric, gram(a, b) = gram(b, a)^T")
    own = kernel.gram(a, a)
    _close(kernel.diag(a), own.diagonal(), "diag: the diagonal of gram(a, a)")
    left, right = kernel.features(a), kernel.features(b)
    assert (left is not None) == kernel.finite_rank, "finite_rank: says whether features gives any"
    if left is not None and right is not None:
        _close(left @ right.T, gram, "features: gram(a, b) = F(a) F(b)^T")


def check_columns(kernel: TaskKernel, a: Tensor, b: Tensor) -> None:
    """A column of gram(a, b) has the same bits whatever the other rows of b are."""
    gram = kernel.gram(a, b)
    for j in {0, len(b) // 2, len(b) - 1}:
        others = 2 * b + 1
        others[j] = b[j]
        assert torch.equal(kernel.gram(a, others)[:, j], gram[:, j]), (
            "gram: column j depends on a and on row j of b alone"
        )


def check_positive_semidefinite(kernel: TaskKernel, signatures: Tensor) -> None:
    """No eigenvalue of gram(a, a) is below -1e-9 of the largest."""
    values = torch.linalg.eigvalsh(kernel.gram(signatures, signatures))
    least, greatest = float(values[0]), float(values[-1])
    assert least >= -1e-9 * max(greatest, 1e-300), (
        f"gram: positive semi-definite; the smallest eigenvalue is {least:.3g} "
        f"beside {greatest:.3g}"
    )


def check_deterministic(make: Callable[[], TaskKernel], tasks: TaskBatch) -> None:
    """Two kernels fitted alike agree bit for bit."""
    first, second = _gram_of(fitted(make, tasks), tasks), _gram_of(fitted(make, tasks), tasks)
    assert torch.equal(first, second), "deterministic: the same fit gives the same bits"


def check_picklable(kernel: TaskKernel, tasks: TaskBatch) -> None:
    """A fitted kernel survives pickling."""
    try:
        copy = pickle.loads(pickle.dumps(kernel))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"picklable: {error}") from error
    assert torch.equal(_gram_of(kernel, tasks), _gram_of(copy, tasks)), "picklable: same values"
    assert copy.state() == kernel.state(), "picklable: same state"


#: Of the laws that are checked on every bank.
_NAMES = {
    check_gram: "gram",
    check_columns: "columns of gram",
    check_positive_semidefinite: "positive semi-definite",
}


def _gram_of(kernel: TaskKernel, tasks: TaskBatch) -> Tensor:
    signatures = kernel.signature(shown(tasks, kernel))
    return kernel.gram(signatures, signatures)


def _same_signature(kernel: TaskKernel, a: TaskBatch, b: TaskBatch, law: str) -> None:
    _close(kernel.signature(b), kernel.signature(a), f"signature: {law}")


def _close(found: Tensor, expected: Tensor, law: str) -> None:
    scale = float(expected.abs().max()) or 1.0
    worst = float((found - expected).abs().max()) / scale if found.numel() else 0.0
    assert worst <= 1e-9, f"{law}; off by {worst:.2g} of the largest entry"
