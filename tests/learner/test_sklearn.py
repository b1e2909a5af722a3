"""The estimators of scikit-learn: its own checks, its tools, and what they give."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import metaforge
from tests.learner.runs import WIDTH, recipe

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from metaforge.sklearn import BadSamples, ConditionalClassifier, ConditionalRegressor

RNG = np.random.default_rng(0)
MEANS = 4 * RNG.normal(size=(4, WIDTH))
Y = np.repeat(np.arange(4), 6)
X = MEANS[Y] + RNG.normal(size=(24, WIDTH))


class Widths:
    """A learner for each width of samples, made when it is first asked for: scikit-learn's checks
    come with several."""

    def __init__(self, inner: str, regression: bool):
        self.inner, self.is_regression = inner, regression
        self.made: dict[int, object] = {}

    def __repr__(self):
        return f"<{self.inner} of any width>"

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return "REGRESSOR" if self.is_regression else "CLASSIFIER"

    def adapt(self, X, y, steps=None, *, source=None):
        if X.shape[1] not in self.made:
            self.made[X.shape[1]] = self._learner(X.shape[1])
        return self.made[X.shape[1]].adapt(X, y, steps, source=source)

    def _learner(self, width):
        source = _lines(width) if self.is_regression else _classes(width)
        return learner_of(source, self.inner)


def _classes(width):
    rng = np.random.default_rng(width)
    means = 3 * rng.normal(size=(30, width))
    y = np.repeat(np.arange(30), 12)
    return metaforge.create(
        "dataset",
        "arrays",
        x=(means[y] + rng.normal(size=(len(y), width))).astype("float32"),
        y=y,
        ways=3,
        shots=4,
        queries=4,
    )


def _lines(width):
    """Tasks y = w x of random w."""
    import torch

    from metaforge.components import Context
    from metaforge.learner.banks import ListedTasks

    n, rows = 40, 12
    rng = np.random.default_rng(width)
    x = torch.from_numpy(rng.normal(size=(n, rows, width))).float()
    y = x @ torch.from_numpy(rng.normal(size=(n, width, 1))).float()
    facts = {
        "shape": {
            "kind": "regression",
            "input_shape": [width],
            "outputs": 1,
            "shots": 6,
            "queries": 6,
        },
        "fingerprint": str(width),
        "licence": "none",
        "group_names": [],
        "preprocess": {},
    }
    ids = torch.arange(n)
    tensors = {
        "ids": ids,
        "groups": torch.full((n,), -1),
        "input/support_x": x[:, :6],
        "input/support_y": y[:, :6],
        "input/query_x": x[:, 6:],
        "input/query_y": y[:, 6:],
        "input/support_mask": torch.ones(n, 6),
        "input/query_mask": torch.ones(n, 6),
        "input/task_ids": ids,
    }
    return ListedTasks(facts, tensors, Context())


def learner_of(source, inner):
    """An untrained learner on a source."""
    from metaforge import stages
    from metaforge.components import Context
    from metaforge.learner.learner import Learner
    from metaforge.metatrain import WarmStart
    from metaforge.recipe.schema import Recipe

    told = recipe(None, inner)
    told["data"], told["bank"] = {"use": "arrays"}, {"size": 30}
    told["condition"] = {"steps": 3, "batch": 4, "top_m": 8}
    made = Recipe.model_validate(told)
    parts = stages.Parts.build(made, stages.context_for(made, Context()), source=source)
    return Learner(parts, WarmStart(parts.theta), {"run": "untrained"})


CLASSIFIER, REGRESSOR = Widths("ls", False), Widths("ls", True)


#: Checks that ask for what no trained learner can give, with the reason.
EXCLUDED = {
    ConditionalClassifier: {
        "check_classifiers_train": "a learner of directions (inputs are normalised) that was never "
        "trained cannot tell blobs in a plane apart; test_it_is_the_learner has one that can"
    },
    ConditionalRegressor: {
        "check_regressor_multioutput": "a learner's outputs are as many as its tasks have"
    },
}


@parametrize_with_checks(
    [ConditionalClassifier(CLASSIFIER), ConditionalRegressor(REGRESSOR)],
    expected_failed_checks=lambda estimator: EXCLUDED[type(estimator)],
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A bundle, of which estimators are made by its path."""
    from metaforge.learner import bundles

    path = tmp_path_factory.mktemp("sklearn") / "bundle"
    bundles.write(learner_of(_classes(WIDTH), "ls"), path)
    return str(path)


def test_it_is_the_learner(run):
    model = ConditionalClassifier(run).fit(X, Y)
    wanted = metaforge.load(run).adapt(X, Y)
    np.testing.assert_array_equal(model.predict_proba(X), wanted.probabilities(X))
    assert model.score(X, Y) > 0.9
    assert not np.array_equal(
        model.predict_proba(X), ConditionalClassifier(run, steps=0).fit(X, Y).predict_proba(X)
    )


def test_in_a_pipeline_with_cross_validation_and_a_grid(run):
    pipeline = make_pipeline(StandardScaler(), ConditionalClassifier(run, steps=1))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.8
    search = GridSearchCV(ConditionalClassifier(run), {"steps": [0, 2]}, cv=2).fit(X, Y)
    assert search.best_params_["steps"] in (0, 2)
    assert set(search.cv_results_["param_steps"]) == {0, 2}


def test_it_clones_and_pickles(run, tmp_path):
    model = ConditionalClassifier(run, steps=2).fit(X, [f"c{i}" for i in Y])
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    again.model_.save(tmp_path / "model")
    assert metaforge.load_model(tmp_path / "model").predict(X).tolist() == model.predict(X).tolist()


def test_one_at_a_time_equals_together(run):
    model = ConditionalClassifier(run).fit(X, Y)
    one = np.concatenate([model.predict_proba(row[None]) for row in X])
    np.testing.assert_allclose(one, model.predict_proba(X), atol=1e-5)


def test_regression_keeps_the_shape_of_y():
    x = RNG.normal(size=(9, 3))
    y = x @ np.ones(3)
    model = ConditionalRegressor(REGRESSOR)
    assert model.fit(x, y).predict(x).shape == (9,)
    assert model.fit(x, y[:, None]).predict(x).shape == (9, 1)
    assert model.fit(x, y).score(x, y) > 0.9


@pytest.mark.parametrize(
    ("estimator", "x", "y", "said"),
    [
        (ConditionalClassifier(CLASSIFIER), X, np.full(24, 1), "one class alone"),
        (ConditionalClassifier(REGRESSOR), X, Y, "is of regression; take ConditionalRegressor"),
        (ConditionalRegressor(CLASSIFIER), X, Y, "is of classification; take ConditionalClass"),
        (ConditionalClassifier("nothing"), X, Y, "expected a run"),
        (ConditionalClassifier(CLASSIFIER, steps=-2), X, Y, "steps is -2"),
    ],
)
def test_what_cannot_be_used_is_a_value_error(estimator, x, y, said):
    with pytest.raises(BadSamples, match=said):
        estimator.fit(x, y)


def test_the_package_is_named_where_it_is_missing(monkeypatch):
    import runpy

    from metaforge import optional
    from metaforge.errors import PluginError

    missing = optional.OptionalPackage("no_such_sklearn", "", "pip install 'metaforge[sklearn]'")
    monkeypatch.setattr(optional, "SKLEARN", missing)
    import metaforge.sklearn as module

    with pytest.raises(PluginError, match=r"pip install 'metaforge\[sklearn\]'"):
        runpy.run_path(str(Path(module.__file__)))


def test_a_transductive_learner_says_so(made):
    run, learner = made("transductive")
    x = np.random.default_rng(0).random((6, *learner.shape.input_shape), dtype=np.float32)
    with pytest.warns(UserWarning, match="the learner is transductive"):
        ConditionalClassifier(str(run), steps=0).fit(x, np.arange(6) % learner.shape.outputs)
