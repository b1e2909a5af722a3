"""An adapted model: a learner moved to one task, kept in a folder, used without bank or data.

::

    model.json         classes, options of the algorithm, what is done to raw samples, where it
                       comes from, checksums
    model.safetensors  theta moved to the task, the task's support, what it made of it

Loading adapts theta to the support again, and holds what it makes of it against what is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from metaforge import __version__, environment, seeding
from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm, Params
from metaforge.creation import create
from metaforge.errors import DamagedFile, DataError, MetaforgeError, PluginError
from metaforge.options import Choice
from metaforge.preprocess import Preprocess
from metaforge.records import (
    digest,
    load_tensors,
    read_json,
    refuse_other_files,
    restoring,
    save_tensors,
    whole_folder,
    write_json,
)
from metaforge.run_files import Identity, Shape
from metaforge.seals import sealed
from metaforge.tasks import TaskBatch, TaskShape

FORMAT = 1
_FILE = "model.safetensors"
#: What a model's folder holds.
OWN_FILES = ("model.json", _FILE)
#: Samples that are predicted at a time, and how far outputs may be from those written.
_BLOCK, _RTOL = 1024, 1e-3


class ModelFile(Shape):
    """``model.json``."""

    format: int
    metaforge: str
    torch: str
    kind: Literal["classification", "regression"]
    classes: list[str | int | float | bool] | None
    shape: dict[str, Any]
    inner: dict[str, Any]
    precision: str
    transductive: bool
    scale: float | None
    preprocess: dict[str, Any]
    components: dict[str, Identity]
    origin: dict[str, Any]
    files: dict[str, str] = Field(min_length=1)


@dataclass(frozen=True, eq=False)
class Adapted:
    """The predictor of one task.

    module      maps the learner's inputs [n, *x] to [n, outputs], in evaluation mode
    classes     labels in the order of the outputs; None in regression
    theta       what it was moved to
    support     the task, one without queries
    inner       the algorithm, initialised for the task
    choice      its name and options
    preprocess  from raw samples to inputs
    scale       probabilities are ``softmax(scale outputs)``; None in regression
    origin      the run, its data, J and M
    """

    module: nn.Module
    classes: tuple[Any, ...] | None
    theta: Params
    support: TaskBatch
    inner: InnerAlgorithm
    choice: Choice
    preprocess: Preprocess
    scale: float | None
    origin: dict[str, Any]
    context: Context

    @property
    def transductive(self) -> bool:
        """Whether a prediction depends on the others that are made with it."""
        return self.inner.transductive

    @torch.no_grad()
    def outputs(self, samples: Any) -> np.ndarray:
        """[n, outputs] of raw samples, as ``Preprocess`` takes them, or raises for them."""
        x = torch.from_numpy(self.preprocess(np.asarray(samples), self.context))
        x = x.to(self.context.device)
        blocks = [x] if self.transductive else x.split(_BLOCK)
        return torch.cat([self.module(block) for block in blocks]).cpu().numpy()

    def probabilities(self, samples: Any) -> np.ndarray:
        """[n, classes] float64, rows sum to 1: ``softmax(scale outputs)``."""
        return probabilities(self.outputs(samples), self.scale)

    def predict(self, samples: Any) -> np.ndarray:
        """[n] labels, or [n, d] values of regression."""
        outputs = self.outputs(samples)
        return outputs if self.classes is None else np.array(self.classes)[outputs.argmax(1)]

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the model's folder, whole or not at all.

        Raises ``DataError`` where there is something at ``path`` (``force`` replaces a folder),
        or the disk fails.
        """
        with whole_folder(Path(path), force=force, replaces=OWN_FILES) as folder:
            save_tensors(folder / _FILE, self._tensors())
            files = {_FILE: digest(folder / _FILE)}
            write_json(folder / "model.json", sealed({**self._facts(), "files": files}))

    def __reduce__(self) -> Any:
        """As its folder holds it, so that pickling asks nothing of the algorithm."""
        tensors = {name: value.cpu().numpy() for name, value in self._tensors().items()}
        return _unpickled, (self._facts(), tensors)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"theta/{name}": value for name, value in self.theta.items()}
        tensors |= {"support_x": self.support.support_x, "support_y": self.support.support_y}
        tensors["outputs"] = _own_outputs(self.module, self.support)
        arrays = self.preprocess.arrays().items()
        tensors |= {f"preprocess/{name}": torch.from_numpy(array) for name, array in arrays}
        return tensors

    def _facts(self) -> dict[str, Any]:
        shape = shape_of(self.support)
        return {
            "format": FORMAT,
            "metaforge": __version__,
            "torch": torch.__version__,
            "kind": shape.kind,
            "classes": None if self.classes is None else list(self.classes),
            "shape": asdict(shape),
            "inner": self.choice.model_dump(mode="json"),
            "precision": self.context.dtype,
            "transductive": self.transductive,
            "scale": self.scale,
            "preprocess": self.preprocess.facts(),
            "components": environment.of_choice("inner", "inner_algorithm", self.choice),
            "origin": self.origin,
        }


def probabilities(outputs: np.ndarray, scale: float | None) -> np.ndarray:
    """``softmax(scale outputs)`` [n, classes] float64."""
    logits = (scale or 1.0) * outputs.astype(np.float64)
    found = np.exp(logits - logits.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def shape_of(support: TaskBatch) -> TaskShape:
    """Of a task, whose shots are those of its largest class."""
    y = support.support_y[0]
    rows = len(y) if support.is_regression else int(y.bincount().max())
    kind: Literal["classification", "regression"]
    kind = "regression" if support.is_regression else "classification"
    return TaskShape(kind, tuple(support.support_x.shape[2:]), support.outputs, rows, 1)


def load(path: str | Path, *, context: Context | None = None, device: str | None = None) -> Adapted:
    """The model of a folder that ``save`` wrote.

    Raises ``DamagedFile`` for one that is not whole, of another format, or that adapts to
    something else here than where it was written; ``PluginError`` where its algorithm is not
    here.
    """
    path = Path(path)
    _refuse_learner(path)
    told = read_json(path / "model.json", ModelFile)
    if told["format"] != FORMAT:
        raise DamagedFile(
            f"{path}: a model of format {told['format']}, made by metaforge {told['metaforge']}; "
            f"this is {__version__}, which reads format {FORMAT}: adapt anew"
        )
    refuse_other_files(path, told["files"])
    tensors, _ = load_tensors(path / _FILE)
    picked = environment.pick_device(device or "auto")
    context = replace(context or Context(), device=picked, dtype=told["precision"])
    with restoring(path, "adapt anew"):
        found = _restored(path, told, tensors, context)
        _refuse_other_outputs(path, told, found, tensors["outputs"])
    return found


def _refuse_learner(path: Path) -> None:
    """``DataError`` for what is no model: a learner, say, that is to be adapted first."""
    if (path / "model.json").is_file():
        return
    from metaforge.learner.load import find

    try:
        find(path)
    except DataError:
        raise DataError(
            f"{path}: no adapted model (model.json); metaforge adapt makes one of labelled samples"
        ) from None
    raise DataError(
        f"{path}: a learner, no adapted model: first metaforge adapt {path} --support FOLDER --out "
        "MODEL, labelled samples of the classes to tell apart"
    )


def _unpickled(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Adapted:
    """What ``Adapted.__reduce__`` gives, on the CPU."""
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
    return _restored(Path("<pickle>"), facts, tensors, Context(dtype=facts["precision"]))


def _restored(
    path: Path, told: dict[str, Any], tensors: Mapping[str, Tensor], context: Context
) -> Adapted:
    choice = Choice.model_validate(told["inner"])
    try:
        inner: InnerAlgorithm = create("inner_algorithm", choice, context)
    except MetaforgeError as error:
        if missing := environment.absent(told["components"], "predict"):
            raise PluginError("\n".join([f"{path}: {error}", *missing])) from error
        raise
    shape = TaskShape(**{**told["shape"], "input_shape": tuple(told["shape"]["input_shape"])})
    fresh = inner.init(shape, seeding.generator(0, "init"))
    theta = _named(tensors, "theta/")
    _refuse_other_shapes(path, told, theta, fresh)
    device, dtype = context.device, getattr(torch, context.dtype)
    support = TaskBatch(tensors["support_x"], tensors["support_y"], outputs=shape.outputs)
    support = support.to(device, dtype)
    theta = {name: theta[name].to(device) for name in fresh}
    module = inner.export(theta, support).eval()
    classes = None if told["classes"] is None else tuple(told["classes"])
    module.classes = classes  # type: ignore[assignment]
    arrays = {name: value.numpy() for name, value in _named(tensors, "preprocess/").items()}
    return Adapted(
        module=module,
        classes=classes,
        theta=theta,
        support=support,
        inner=inner,
        choice=choice,
        preprocess=Preprocess.of(told["preprocess"], arrays),
        scale=told["scale"],
        origin=told["origin"],
        context=context,
    )


def _named(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def _refuse_other_shapes(path: Path, told: dict[str, Any], given: Params, fresh: Params) -> None:
    """``DamagedFile`` with every parameter that is not what the algorithm here has."""
    found = {name: list(value.shape) for name, value in given.items()}
    wanted = {name: list(value.shape) for name, value in fresh.items()}
    wrong = [
        f"{name} is {found.get(name, 'missing')}, expected {wanted.get(name, 'nothing')}"
        for name in {**wanted, **found}
        if found.get(name) != wanted.get(name)
    ]
    if wrong:
        raise DamagedFile("\n  ".join([f"{path}: theta is of another shape{_made(told)}:", *wrong]))


def _refuse_other_outputs(path: Path, told: dict[str, Any], found: Adapted, wanted: Tensor) -> None:
    outputs = _own_outputs(found.module, found.support).cpu()
    error = float((outputs - wanted).norm() / wanted.norm().clamp(min=1e-30))
    if not error <= _RTOL:
        raise DamagedFile(
            f"{path}: what it makes of its own support differs by {100 * error:.3g} % from what "
            f"was written{_made(told)}: adapt anew, or put that version back"
        )


def _made(told: dict[str, Any]) -> str:
    """What made a model and is other here, in words."""
    now = {"metaforge": __version__, "torch": torch.__version__}
    changed = [f"{name} {told[name]} -> {now[name]}" for name in now if told[name] != now[name]]
    changed += environment.differences(told["components"], environment.here(told["components"]))
    return f" ({'; '.join(changed)})" if changed else ""


@torch.no_grad()
def _own_outputs(module: nn.Module, support: TaskBatch) -> Tensor:
    """[S, outputs]"""
    found: Tensor = module(support.support_x[0])
    return found.detach()
