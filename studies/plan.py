"""What docs/results.md rests on: data sets, learners, signatures, and the runs of each table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SEEDS = (0, 1, 2)
#: The signature of the recipes themselves.
SIGNATURE = "contrast"


@dataclass(frozen=True)
class Cell:
    """One method on one data set: a recipe, what is changed in it, and what it is called."""

    data: str
    learner: str = "ls"
    signature: str = SIGNATURE
    #: Beyond learner and signature, e.g. ``bank.size=30000``.
    extra: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        return f"recipes/results/{self.data}.yaml"

    @property
    def changes(self) -> tuple[str, ...]:
        """Overrides of the recipe, in the order in which they apply."""
        learner = () if self.learner == own_learner(self.data) else LEARNERS[self.learner]
        fewer = _fewer(self.data) if self.few else ()
        signature = () if self.signature == SIGNATURE else (f"kernel.embedding={self.signature}",)
        return (*learner, *fewer, *signature, *self.extra)

    @property
    def few(self) -> bool:
        """Whether it is run beside the most telling controls alone, as each costs a run more."""
        full = self.data in FULL and self.learner == own_learner(self.data)
        return self.signature == SIGNATURE and not full

    @property
    def command(self) -> str:
        """What makes the run of a seed, for a reader to type."""
        return " ".join(["metaforge run", self.recipe, *(f"'{text}'" for text in self.changes)])


DATA = {
    "three_sources": "three sources: letters, CIFAR-FS, Omniglot",
    "two_sources": "two sources: letters, typefaces",
    "sinusoids": "regression, five families",
    "glyphs": "glyphs, letters and typefaces in one source",
    "cifar_fs": "CIFAR-FS",
    "omniglot_within": "Omniglot, within alphabets",
    "omniglot_vinyals": "Omniglot, Vinyals' split",
}
#: Data whose tasks have groups that the bank has too.
GROUPED = ("two_sources", "three_sources", "glyphs")
#: Data on which the recipe's own learner meets every control, with and without the target term.
FULL = ("three_sources", "sinusoids")


def own_learner(data: str) -> str:
    """The learner of the recipe itself."""
    return "maml" if data == "sinusoids" else "ls"


def _fewer(data: str) -> tuple[str, ...]:
    """The most telling controls."""
    oracle = ", oracle" if data in GROUPED else ""
    return (
        f"evaluate.controls=[random_m, target_only{oracle}]",
        "evaluate.without_target_term=false",
    )


#: Phase 1 and the inner loop as in the shipped recipes of these learners, where the values were
#: chosen on validation tasks. J is that of the data's recipe, and the rates of conditioning that
#: were chosen for twice as many steps are doubled, as ls has it; not chosen anew.
LEARNERS: dict[str, tuple[str, ...]] = {
    "ls": (),
    "maml": (
        "inner={use: maml, model: {use: mlp, hidden: [64]}, steps: 5, lr: 1.0}",
        "meta_train.optimizer.lr=3e-4",
    ),
    "r2d2": (
        "inner={use: r2d2, ridge: 1.0}",
        "meta_train.optimizer.lr=1e-2",
        "condition.optimizer.lr=6e-4",
    ),
    "leo": (
        "inner={use: leo}",
        "meta_train.steps=500",
        "meta_train.optimizer={lr: 1e-3, clip_value: 0.1, clip_norm: 0.1}",
        "condition.optimizer={lr: 1e-3, clip_value: 0.1, clip_norm: 0.1}",
        "condition.batch=4",
    ),
}
#: Learners that are slow on a CPU are run where the sources differ.
SLOW = ("r2d2", "leo")
#: Of what is not the recipe's own: each run is long.
_HALF = ("evaluate.targets=100",)
SIGNATURES = ("mean", "moments", "fourier", "classes", "set", "learned", SIGNATURE)
#: What a row of signatures shows beside SP itself comes from the main runs: the controls do
#: not depend on the signature.
_ALONE = ("evaluate.controls=[]", "evaluate.without_target_term=false")
#: Where there are sources to tell apart.
COMPARED = "three_sources"

BANKS = (300, 1000, 5000, 10000, 30000)
#: The bank of the recipes themselves.
_OWN = 5000
_STEPS = (
    "condition.steps=100",
    "condition.record_at=[0, 5, 10, 25, 50, 100]",
    "evaluate.targets=100",
)


def learners() -> list[Cell]:
    """Every learner against every control that it is run with."""
    own = [Cell(data, own_learner(data)) for data in DATA]
    maml = [Cell(data, "maml", extra=_HALF) for data in DATA if own_learner(data) != "maml"]
    slow = [Cell("three_sources", name, extra=_HALF) for name in SLOW]
    return [*own, *maml, *slow]


def signatures() -> list[Cell]:
    """Every signature, with LS."""
    return [Cell(COMPARED, "ls", name, _ALONE if name != SIGNATURE else ()) for name in SIGNATURES]


def steps() -> list[Cell]:
    """Long conditioning, for the curve over J."""
    data = "three_sources"
    return [Cell(data, extra=(*_fewer(data), *_STEPS))]


def banks() -> list[Cell]:
    """Banks of every size, for the curve over N; the recipe's own size is a main run."""
    data = "three_sources"
    few = ("evaluate.controls=[random_m, oracle]", "evaluate.without_target_term=false", *_HALF)
    return [Cell(data, extra=() if n == _OWN else (f"bank.size={n}", *few)) for n in BANKS]


def every() -> Iterator[Cell]:
    """All cells, each once: the learners of the recipes, the signatures, the rest."""
    own = [cell for cell in learners() if cell.learner == own_learner(cell.data)]
    yield from dict.fromkeys([*own, *signatures(), *steps(), *banks(), *learners()])
