"""A trained learner as estimators of scikit-learn (the extra ``sklearn``).

>>> from metaforge.sklearn import ConditionalClassifier
>>> model = ConditionalClassifier("glyphs").fit(images, labels)   # a few of each class
>>> model.predict_proba(others)

``fit`` moves the learner to the task of X and y, as ``metaforge adapt`` does. X are raw samples:
images [n, h, w] or [n, c, h, w] as bytes or numbers in [0, 1] (also as rows [n, c * h * w]), or
rows of features [n, p], of the form that the learner's data had.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from metaforge.errors import DataError, PluginError, RecipeError
from metaforge.optional import SKLEARN

if SKLEARN.missing:
    raise PluginError(f"metaforge.sklearn: {SKLEARN.missing}")

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data


class BadSamples(DataError, ValueError):
    """Samples or labels that cannot be used; a ``ValueError``, as scikit-learn has it."""


@contextmanager
def _as_value_errors() -> Iterator[None]:
    try:
        yield
    except (DataError, RecipeError) as error:
        raise BadSamples(str(error)) from error


@lru_cache(maxsize=2)
def _loaded(path: str, device: str | None, changed: int) -> Any:
    """A learner, kept for the estimators that are cloned of one; ``changed`` tells of another."""
    from metaforge.learner.load import load_learner

    return load_learner(path, device=device)


class _Conditional(BaseEstimator):
    """``fit`` and what predictions are made of."""

    _regression = False

    def __init__(
        self,
        run: Any = "glyphs",
        *,
        steps: int | None = None,
        source: str | None = None,
        device: str | None = None,
    ):
        self.run = run
        self.steps = steps
        self.source = source
        self.device = device

    def fit(self, X: Any, y: Any) -> Any:
        """Condition the learner on samples X and their labels, or real targets, y."""
        X, y = validate_data(
            self,
            X,
            y,
            allow_nd=True,
            ensure_min_samples=2,
            multi_output=self._regression,
            y_numeric=self._regression,
        )
        if not self._regression:
            check_classification_targets(y)
        with _as_value_errors():
            learner = self._learner()
            if learner.is_regression != self._regression:
                kind = "regression" if learner.is_regression else "classification"
                raise DataError(
                    f"{type(self).__name__}: the learner is of {kind}; take "
                    f"Conditional{'Regressor' if learner.is_regression else 'Classifier'}"
                )
            self.model_ = learner.adapt(X, y, self.steps, source=self.source)
        if self.model_.transductive:
            warnings.warn(
                "the learner is transductive: what it predicts of a sample depends on the others "
                "that are predicted with it",
                stacklevel=3,
            )
        return self

    def _learner(self) -> Any:
        if not isinstance(self.run, str | os.PathLike):
            return self.run
        from metaforge.learner.load import find

        path = Path(find(self.run))
        return _loaded(str(path.resolve()), self.device, path.stat().st_mtime_ns)

    def _seen(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return np.asarray(validate_data(self, X, reset=False, allow_nd=True))


class ConditionalClassifier(ClassifierMixin, _Conditional):
    """A classifier that a trained learner becomes on a few labelled samples.

    run     folder of a run or bundle, name of a shipped bundle, or a loaded learner
    steps   J; None: the run's. 0: the unconditional learner
    source  which source of a mixture the samples are like
    device  where it computes; None: what the recipe says

    After ``fit``: ``classes_``, ``n_features_in_`` and ``model_``, a ``metaforge.adapted.Adapted``
    that can be saved. Raises ``ValueError`` for samples and labels that cannot be used, other
    numbers of classes than the learner can serve among them.
    """

    def fit(self, X: Any, y: Any) -> ConditionalClassifier:
        super().fit(X, y)
        self.classes_ = np.array(self.model_.classes)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[n] labels."""
        seen = self._seen(X)
        with _as_value_errors():
            return self.classes_[self.model_.outputs(seen).argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """[n, classes] in the order of ``classes_``, as ``Adapted.probabilities``."""
        seen = self._seen(X)
        with _as_value_errors():
            return self.model_.probabilities(seen)


class ConditionalRegressor(RegressorMixin, _Conditional):
    """A regressor that a trained learner becomes on a few samples with real targets.

    Its parameters are those of ``ConditionalClassifier``; ``run`` has to be named, as no bundle of
    regression is shipped.
    """

    _regression = True

    def __init__(
        self,
        run: Any,
        *,
        steps: int | None = None,
        source: str | None = None,
        device: str | None = None,
    ):
        super().__init__(run, steps=steps, source=source, device=device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> ConditionalRegressor:
        super().fit(X, y)
        self._flat = np.ndim(np.asarray(y)) == 1
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[n], or [n, d] where ``fit`` was given y [n, d]."""
        seen = self._seen(X)
        with _as_value_errors():
            found = self.model_.outputs(seen)
        return found[:, 0] if self._flat else found
