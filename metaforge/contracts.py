"""The contracts of the components, with their algebra.

Symbols: B tasks in a batch, S support and Q query rows, N bank tasks, T targets,
p the width of a signature. ``Params`` (theta) is a flat dict of named tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from metaforge import losses
from metaforge.components import Context
from metaforge.options import Options
from metaforge.tasks import TaskBatch, TaskKind, TaskShape

if TYPE_CHECKING:
    from metaforge.image_files import ImageForm

Params = dict[str, Tensor]
#: A state, noise or signature: a tensor or a nest of dicts and tuples of tensors.
Tree = Any


class Part:
    """What every component holds: its validated options and the run's context."""

    def __init__(self, options: Any = None, context: Context | None = None):
        self.options: Any = options if options is not None else Options()
        self.context = context or Context()


class Model(Part, ABC):
    """A network for MAML-like inner algorithms (the component kind ``model``).

    ``build(shape)`` gives a fresh ``nn.Module`` that maps ``[n, *x]`` to
    ``[n, outputs]``, initialised from the generator alone. ``transductive`` is true
    if a sample's output depends on the others of its batch.
    """

    transductive: bool = False

    @abstractmethod
    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module: ...


class Backbone(Part, ABC):
    """Images to features (the component kind ``backbone``): phi of the paper.

    ``features`` maps ``[n, *x]`` to ``[n, width]`` without gradient; images are floats in [0, 1].
    ``images`` is the form that it wants them in, which ``metaforge.embedding`` brings them to;
    None where it takes them as they are. ``fingerprint`` names the weights, and every option that
    makes other features of them.

    Laws: an image's features do not depend on the others asked with it; other weights have
    another fingerprint.
    """

    width: int
    fingerprint: str
    images: ImageForm | None = None

    @abstractmethod
    def features(self, images: Tensor) -> Tensor: ...


class InnerAlgorithm(Part, ABC):
    """Alg(theta, D): learns a task from its support set, batched over tasks.

    Laws:

    * theta is never changed in place.
    * With an inner loop, 0 steps is the identity.
    * ``losses`` is differentiable in theta: at ``order`` 2 its gradient matches finite
      differences in float64; at order 1 it matches them with the update held constant (or, if
      the update itself is learned, its gradients).
    * Tasks of a batch do not see each other: row b depends on task b alone.
    * Padding rows count for nothing, whatever finite numbers they hold.
    * Unless ``transductive``, predicting queries one by one equals predicting them together.
    * At evaluation no graph is kept: memory is flat over targets.
    * If ``vmappable``, ``losses``, ``predict`` and ``penalty`` under ``torch.func.vmap`` over
      copies of theta give what one call a copy gives.

    ``init`` comes first: it fixes the shape of the tasks and gives fresh parameters.
    """

    order: Literal[1, 2] = 2
    has_inner_loop: bool = False
    #: Whether parameters learned at one number of classes serve another.
    variable_ways: bool = False
    #: Whether ``torch.func.vmap`` over theta and tasks gives, gradients included, what one call
    #: for each theta gives: then several targets are conditioned at once.
    vmappable: bool = False
    #: Whether its networks' forward passes run within ``metaforge.precision.forward_pass``, so
    #: that ``precision: bf16`` can have them in bfloat16.
    mixed_precision: bool = False
    transductive: bool = False
    #: Whether the softmax of what it predicts for classes is meant as their probabilities; else
    #: predictions are scores, and probabilities the softmax of a multiple, fitted on bank tasks.
    gives_logits: bool = True
    tasks: ClassVar[frozenset[str]] = frozenset({"classification"})

    @abstractmethod
    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        """Fresh theta, on the context's device and in its precision."""

    @abstractmethod
    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        """Alg(theta, D^tr) for each task: the adapted state, leading axis B."""

    @abstractmethod
    def losses(
        self, params: Params, tasks: TaskBatch, *, training: bool = False, noise: Tree = None
    ) -> Tensor:
        """[B]: L(Alg(theta, D_b^tr), D_b^val), differentiable in theta (paper, eq. 2)."""

    @abstractmethod
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        """[B, Q, outputs]: logits (or scores, or regression values) of each query."""

    def query_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """[B]: what ``losses`` makes of predictions [B, Q, outputs], outside of training, for
        labels y and mask [B, Q]. Default: mean cross-entropy, or mean squared error of real y."""
        return losses.task_losses(outputs, y, mask)

    @abstractmethod
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        """One task's adapted predictor as a plain module ``[n, *x] -> [n, outputs]`` (B = 1)."""

    def features(self, params: Params, x: Tensor) -> Tensor | None:
        """[n, w]: what theta makes of inputs [n, *x], each alone, before any task's own part;
        for kernels that look at it (``phi: theta_hat``). None for an algorithm without."""
        return None

    def penalty(self, params: Params) -> Tensor | None:
        """Regularisers of theta: added once a step, never multiplied by a task's weight."""
        return None

    def draw_noise(self, generator: torch.Generator, n_tasks: int) -> Tree:
        """Noise for the training mode of a stochastic algorithm; None where there is none.

        Every tensor in it has the tasks as its leading axis, ``[n_tasks, ...]``.
        """
        return None

    def diagnose(self, params: Params, tasks: TaskBatch, *, noise: Tree = None) -> str | None:
        """Where a loss stopped being finite: "inner step 3, tensor 'weight'"; None if nowhere.

        ``noise`` is that of the training step that failed; None for evaluation.
        """
        return None

    def describe(self) -> dict[str, Any]:
        """What a run's header says: order, options, which implementation runs."""
        return {"order": self.order, **dict(self.options)}


#: Columns of a block of targets. The bits of a matrix product or a solve depend on how many
#: columns it has and on a column's place, so both are fixed: target i stands at i mod this.
TARGET_BLOCK = 64


class GramOperator(ABC):
    """K of the bank, without having to hold it: [N, N], symmetric, float64.

    ``dense`` gives a fresh C-ordered array that the caller may overwrite, rounded to float32
    where that is asked for, tile by tile.
    """

    n_tasks: int
    kernel_name: str

    @abstractmethod
    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor: ...

    @abstractmethod
    def block(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor:
        """K of some rows and columns, each a slice or task numbers [n]."""

    @abstractmethod
    def diag(self) -> Tensor: ...

    @abstractmethod
    def products(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """K v for each v [N] or [N, T]; each part of K is computed once for all of them."""

    def matvec(self, vector: Tensor) -> Tensor:
        """K v for v [N] or [N, T]."""
        return self.products([vector])[0]

    @abstractmethod
    def features(self) -> Tensor | None:
        """F [N, r] with K = F F^T where the kernel has finite rank r, else None."""

    @abstractmethod
    def signatures(self) -> Tensor:
        """[N, p]: the bank's signatures, for weightings that cluster tasks."""


class TaskKernel(Part, ABC):
    """k(D, D') on data sets (paper, section 4.2), through a signature of each task.

    ``signature(tasks) -> [n, p]`` and ``gram(a, b) -> [n, m]`` on signatures, in float64.
    Laws: symmetric; positive semi-definite to tolerance; finite; column j of gram(a, b) has
    the same bits whatever the other rows of b are, so that no target's scores depend on its
    company; a signature does not depend on the order of samples, nor on padding rows, whatever
    they hold (NaN too), nor (for classification) on the labels' numbering.
    ``fit`` sees a sample of bank tasks once and fixes what is data-dependent
    (bandwidth, standardisation); its state is saved with the run.
    """

    name: str = "kernel"
    #: ``support`` or ``all``: which inputs the signature reads. ``all`` is transductive.
    reads: Literal["support", "all"] = "support"
    #: Whose features of a sample it looks at: the data's, or the inner algorithm's at theta_hat.
    phi: Literal["data", "theta_hat"] = "data"
    #: Whether ``features`` gives any, known before the kernel is fitted.
    finite_rank: bool = False

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Fix what depends on data, from at most 1000 bank tasks, whole: they are training
        data, queries and all. Default: nothing."""

    @abstractmethod
    def signature(self, tasks: TaskBatch) -> Tensor: ...

    @abstractmethod
    def gram(self, a: Tensor, b: Tensor) -> Tensor: ...

    @abstractmethod
    def diag(self, a: Tensor) -> Tensor:
        """[n]: k(D, D)."""

    def features(self, signatures: Tensor) -> Tensor | None:
        """F [n, r] with gram(a, b) = F(a) F(b)^T where the rank is finite (``finite_rank``),
        else None."""
        return None

    def describe(self) -> dict[str, Any]:
        """What a run's header says: the options that are in force. Default: all."""
        return dict(self.options)

    def state(self) -> dict[str, float | str]:
        """What ``fit`` fixed, for the run's record: the bandwidth, a choice of signature."""
        return {}


class TaskWeighting(Part, ABC):
    """alpha(D): how much each bank task counts for a target.

    ``fit`` once a bank, ``weights`` for any number of targets: cross is v(D) of the
    paper's eq. 5, ``[N, T]``, self is k(D, D), ``[T]``; the answer is ``[N, T]``, each
    column a function of its own column of ``cross`` alone, and permuting the bank permutes
    the rows. Top-M, clipping and normalisation belong to the engine.
    """

    needs_gram: bool = True
    target_specific: bool = True
    sums_to_one: bool = False
    may_be_negative: bool = False
    learned: bool = False
    #: Blocks of ``TARGET_BLOCK`` targets that ``weights`` takes at a time. Where it is more than
    #: 1, a column's bits must be the same whatever blocks stand beside its own.
    blocks: int = 1

    def require_memory(self, n_tasks: int, kernel: TaskKernel) -> None:
        """Raise ``DataError`` where what ``fit`` will hold does not fit on the context's device.
        Asked before phase 1, of a kernel that is not fitted yet. Default: nothing."""
        return None

    @abstractmethod
    def fit(
        self, gram: GramOperator | None, groups: Tensor, *, kind: TaskKind = "classification"
    ) -> Tree:
        """State for a bank. ``groups`` [N]: each task's group, -1 where there is none.

        ``kind`` is that of the tasks, for weightings whose objective depends on it.
        """

    @abstractmethod
    def weights(self, state: Tree, cross: Tensor, self_: Tensor) -> Tensor: ...

    def parameters(self, state: Tree) -> Params:
        """Learned ones: fresh parameters, optimised beside theta with ``learning_rate``."""
        return {}

    #: The learned parameters' own learning rate.
    learning_rate: float = 1e-2

    def combine(self, parameters: Params, losses: Tensor, bank_ids: Tensor, state: Tree) -> Tensor:
        """Learned ones: the scalar objective of losses [B] of the bank tasks ``bank_ids`` [B]."""
        raise NotImplementedError

    def report(self, state: Tree) -> Mapping[str, float]:
        """What the run records of the fit: jitter, condition estimate, ...

        ``error``, if given, estimates how far rounding moves alpha(D), in shares of its length
        (2-norm); a run warns where that is more than what sets the kept tasks apart.
        """
        return {}


class Tracker(Part):
    """An observer chosen in the recipe: gets what the observer hooks get."""

    def run_started(self, run_dir: Any, recipe: Any) -> None: ...

    def meta_step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def target_evaluated(self, record: Mapping[str, Any]) -> None: ...

    def run_finished(self, run_dir: Any, results: Mapping[str, Any]) -> None: ...
