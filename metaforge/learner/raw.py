"""A learner and raw samples: what is done to them, and probabilities of what is predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from metaforge.adapted import Adapted
from metaforge.errors import DataError
from metaforge.learner.learner import Learner
from metaforge.mixed import MixtureTasks
from metaforge.preprocess import Preprocess
from metaforge.suggest import did_you_mean
from metaforge.tasks import TaskSource, View

#: Bank tasks on whose queries the scale of scores is fitted, and those predicted at a time.
_TASKS, _AT_ONCE = 200, 50
#: Logarithms of the least and greatest scale.
_SCALES = (-3.0, 7.0)


def preprocess_of(
    source: TaskSource, name: str | None = None, view: View = "input"
) -> Preprocess | None:
    """What is done to raw samples, of a mixture to those of the source ``name``; None for
    features whose making is not known.

    Raises ``DataError`` that lists a mixture's sources where none is named, or there is no such.
    """
    if isinstance(source, MixtureTasks):
        listed = ", ".join(source.sources)
        if name is None:
            raise DataError(
                f"the learner's data are a mixture of {listed}, each with a projection of its own: "
                "say which of them the samples are like (--source NAME)"
            )
        first, _, rest = name.partition(".")
        if first not in source.sources:
            raise DataError(
                f"the mixture has no source {first!r}{did_you_mean(first, source.sources)}; it has "
                f"{listed}"
            )
        return preprocess_of(source.sources[first], rest or None, view)
    if name is not None:
        raise DataError(f"the learner's data are no mixture: there is no source {name!r} to name")
    found = source.preprocess(view)
    if found is None and view == "input":
        return Preprocess(source.shape.input_shape)
    return found


def adapt(
    learner: Learner,
    samples: Any,
    y: Any,
    *,
    steps: int | None = None,
    source: str | None = None,
    features: Any = None,
) -> Adapted:
    """The learner moved to raw samples and their labels, ready to be saved and to predict.

    samples   as ``Preprocess`` takes them
    source    which of a mixture's sources they are like
    features  phi(x) [n, p] where the run's kernel sees what cannot be made of the samples

    Raises what ``Learner.condition``, ``Preprocess`` and ``preprocess_of`` raise.
    """
    parts = learner.parts
    preprocess = preprocess_of(parts.source, source)
    assert preprocess is not None
    given = np.asarray(samples)
    seen = preprocess_of(parts.source, source, "features") if parts.source.has_features else None
    if features is None and seen is not None:
        features = seen(given, parts.context)
    task = learner.task(preprocess(given, parts.context), y, features=features)
    with learner.at_work():
        found = learner.conditioned(task, steps)
        module = learner.exported(found)
        inner = learner.bank(task.support.outputs).parts.inner
        return Adapted(
            module=module,
            classes=task.classes,
            theta=found.theta,
            support=task.support,
            inner=inner,
            choice=learner.recipe.inner,
            preprocess=preprocess,
            scale=scale_of(learner, task.support.outputs),
            origin={
                **{key: value for key, value in learner.origin.items() if key != "components"},
                "task_id": task.task_id,
                "steps": found.steps,
                "recalled": 0 if found.recalled is None else len(found.recalled[0]),
                "skipped": found.skipped,
                "bank": learner.bank(task.support.outputs).parts.source.fingerprint,
                "source": source,
            },
            context=parts.context,
        )


def scale_of(learner: Learner, ways: int) -> float | None:
    """What outputs are multiplied by for probabilities, ``softmax(scale outputs)``: 1 for logits;
    for scores the number that makes the labels of bank tasks' queries likeliest, the tasks
    adapted from theta_hat. None in regression."""
    if learner.is_regression:
        return None
    bank = learner.bank(ways)
    if bank.parts.inner.gives_logits:
        return 1.0
    if bank.scale is None:
        bank.scale = _fitted(*_queries(learner, ways))
    return bank.scale


@torch.no_grad()
def _queries(learner: Learner, ways: int) -> tuple[Tensor, Tensor]:
    """Outputs [n, ways] and labels [n] of bank tasks' queries."""
    parts, outputs, labels = learner.bank(ways).parts, [], []
    count = min(_TASKS, parts.recipe.bank.size)
    for start in range(0, count, _AT_ONCE):
        tasks = parts.source.batch("train", range(start, min(start + _AT_ONCE, count)))
        assert tasks.query_x is not None
        assert tasks.query_y is not None
        theta = learner.start.theta
        found = parts.inner.predict(theta, tasks.without_query(), tasks.query_x)
        kept = tasks.query_mask > 0
        outputs.append(found[kept])
        labels.append(tasks.query_y[kept])
    return torch.cat(outputs).double().cpu(), torch.cat(labels).cpu()


def _fitted(outputs: Tensor, labels: Tensor) -> float:
    """The scale of least cross-entropy, which is convex in it."""

    def loss(log_scale: float) -> float:
        return float(torch.nn.functional.cross_entropy(np.exp(log_scale) * outputs, labels))

    found = minimize_scalar(loss, bounds=_SCALES, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))
