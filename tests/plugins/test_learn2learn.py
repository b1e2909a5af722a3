"""learn2learn: options, ready learners, any module, what it refuses and why, its absence."""

from __future__ import annotations

import copy
import sys
from importlib import import_module
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

import metaforge
from metaforge import optional
from metaforge.components import Context
from metaforge.errors import PluginError, RecipeError
from metaforge.tasks import TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import meta_gradient, toy_tasks
from metaforge_learn2learn import peer
from metaforge_learn2learn.options import Learn2learnOptions
from tests.plugins.learn2learn_cases import ALGORITHMS, NEEDS_LEARN2LEARN, made, started
from tests.plugins.maml_cases import CONTEXT, IMAGES, WIDE, PartlyUsed, Tanh

EACH = pytest.mark.parametrize("algorithm", ALGORITHMS)


def net(*after: nn.Module) -> nn.Sequential:
    """A float64 chain from 9 inputs to 3 outputs."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 4), *after, nn.Tanh(), nn.Linear(4, 3)).double()


# -- options and names ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "ANIL"}, "algorithm"),
        ({"adapt": "body"}, "adapt"),
        ({"lr": 0.0}, "lr"),
        ({"order": 3}, "order"),
        ({"stpes": 1}, "stpes"),
        ({"transform": "kronecker"}, "transform: MAML has none.*GBML"),
        ({"algorithm": "MetaSGD", "transform": "meta_curvature"}, "transform: MetaSGD has none"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Learn2learnOptions.model_validate(options)


@NEEDS_LEARN2LEARN
def test_theta_has_the_models_names_and_those_of_what_is_learned() -> None:
    model = ["hidden0.weight", "hidden0.bias", "output.weight", "output.bias"]
    _, params = started("mlp", WIDE)
    assert list(params) == model
    _, params = started("mlp", WIDE, **ALGORITHMS["MetaSGD"])
    assert set(params) == {*model, *(f"lr.{name}" for name in model)}
    assert torch.equal(params["lr.output.bias"], torch.full((3,), 0.1, dtype=torch.float64))
    _, params = started("mlp", WIDE, **ALGORITHMS["Kronecker, head"])
    sizes = {name: list(value.shape) for name, value in params.items() if name not in model}
    assert sizes == {
        "transform.output.weight.left": [3, 3],
        "transform.output.weight.right": [5, 5],
        "transform.output.bias.left": [3, 3],
        "transform.output.bias.right": [1, 1],
    }


@NEEDS_LEARN2LEARN
def test_names_that_clash_are_refused() -> None:
    class Clash(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lr = nn.Linear(9, 3).double()
            self.weight = nn.Parameter(torch.zeros(3, 9).double())

        def forward(self, x: Tensor) -> Tensor:
            return self.lr(x) + x @ self.weight.T

    with pytest.raises(PluginError, match="rename its layers"):
        started(Clash(), WIDE, algorithm="MetaSGD")


@NEEDS_LEARN2LEARN
def test_describe_says_what_runs() -> None:
    assert made(adapt="head", steps=2, order=1).describe() == {
        "algorithm": "MAML",
        "adapt": "head",
        "order": 1,
        "steps": 2,
        "lr": 0.1,
        "implementation": "learn2learn",
    }
    assert made(algorithm="GBML").describe()["transform"] == "meta_curvature"


@NEEDS_LEARN2LEARN
def test_it_is_created_by_name() -> None:
    inner = metaforge.create(
        "inner_algorithm",
        "learn2learn",
        context=CONTEXT,
        algorithm="MetaSGD",
        model={"use": "mlp", "hidden": [5]},
    )
    assert "lr.hidden0.weight" in inner.init(WIDE, torch.Generator())
    with pytest.raises(RecipeError, match="did you mean 'MetaSGD'"):
        metaforge.create("inner_algorithm", "learn2learn", algorithm="MetaSDG")


@NEEDS_LEARN2LEARN
@EACH
def test_the_seed_alone_decides_theta(algorithm: str) -> None:
    def theta() -> dict[str, Tensor]:
        return made("mlp", **ALGORITHMS[algorithm]).init(WIDE, torch.Generator().manual_seed(3))

    state = torch.get_rng_state()
    first, second = theta(), theta()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)


# -- ready learners ------------------------------------------------------------------


class Scaled(nn.Module):
    """A learner of a user's own: one rate for all, learned, and softplus keeps it positive."""

    def __init__(self, net: nn.Module, rate: Any, first_order: bool = False):
        super().__init__()
        self.net, self.rate, self.first_order = net, rate, first_order

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def clone(self) -> Scaled:
        made = type(self)(peer.load().clone_module(self.net), None, self.first_order)
        made.scale = nn.functional.softplus(self.rate)
        return made

    def adapt(self, loss: Tensor) -> None:
        values = list(self.net.parameters())
        found = torch.autograd.grad(loss, values, create_graph=not self.first_order)
        updates = [-self.scale * g for g in found]
        peer.load().utils.update_module(self.net, updates)


def learners() -> dict[str, Any]:
    package = peer.load()
    algorithms, optim = package.algorithms, package.optim
    torch.manual_seed(0)
    rate = nn.Parameter(torch.tensor(-0.5, dtype=torch.float64))
    return {
        "MAML": algorithms.MAML(net(), lr=0.4),
        "MAML, first order": algorithms.MAML(net(), lr=0.4, first_order=True),
        "MetaSGD": algorithms.MetaSGD(net(), lr=0.4),
        "GBML": algorithms.GBML(net(), optim.MetaCurvatureTransform, lr=0.4).double(),
        "GBML that adapts its transform": algorithms.GBML(
            net(), optim.MetaCurvatureTransform, lr=0.4, adapt_transform=True
        ).double(),
        "GBML of any module": algorithms.GBML(
            net(), optim.ModuleTransform(nn.Linear), lr=0.04
        ).double(),
        "a user's own": Scaled(net(), rate),
    }


@NEEDS_LEARN2LEARN
@pytest.mark.parametrize(
    "name",
    [
        "MAML",
        "MAML, first order",
        "MetaSGD",
        "GBML",
        "GBML that adapts its transform",
        "GBML of any module",
        "a user's own",
    ],
)
def test_laws_of_ready_learners(name: str) -> None:
    learner = learners()[name]
    algorithm = made(learner, steps=2)
    assert algorithm.order == (1 if name == "MAML, first order" else 2)
    laws.check_inner_algorithm(algorithm, WIDE, unadapted=made(learner, steps=0))
    assert algorithm.describe()["algorithm"] == type(learner).__name__


@NEEDS_LEARN2LEARN
def test_a_ready_learner_is_the_component_of_its_name() -> None:
    tasks = toy_tasks(WIDE)
    ready, values = started(learners()["MetaSGD"], WIDE, steps=2)
    ours, params = started(net(), WIDE, steps=2, lr=0.4, algorithm="MetaSGD")
    torch.testing.assert_close(
        ready.losses(values, tasks), ours.losses(params, tasks), rtol=1e-12, atol=1e-12
    )
    found = list(meta_gradient(ready, values, tasks).values())
    for a, b in zip(found, meta_gradient(ours, params, tasks).values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@NEEDS_LEARN2LEARN
def test_a_ready_learner_is_given_as_the_model_and_stays_as_it_is() -> None:
    learner = learners()["a user's own"]
    before = copy.deepcopy(learner.state_dict())
    inner = metaforge.create("inner", "learn2learn", context=CONTEXT, model=learner, steps=1)
    params = {k: v.requires_grad_() for k, v in inner.init(WIDE, torch.Generator()).items()}
    assert set(params) == set(before)
    gradient = meta_gradient(inner, params, toy_tasks(WIDE))
    assert gradient["rate"].abs() > 0
    for name, value in learner.state_dict().items():
        assert torch.equal(value, before[name])


@NEEDS_LEARN2LEARN
def test_a_ready_learner_takes_no_option_that_it_would_not_read() -> None:
    learner = learners()["MAML, first order"]
    with pytest.raises(PluginError, match=r"MAML is a ready learner.*leave out adapt, lr"):
        made(learner, lr=0.3, adapt="head")
    with pytest.raises(PluginError, match=r"order: 2, but MAML has first_order = True"):
        made(learners()["MAML, first order"], order=2)
    with pytest.raises(PluginError, match=r"order: 1, but MAML has first_order = False"):
        made(learners()["MAML"], order=1)
    assert made(learner, order=1).order == 1


class CutsTheGraph(Scaled):
    """Adapts copies: theta gets no gradient."""

    def clone(self) -> Scaled:
        made = super().clone()
        made.scale = made.scale.detach()
        for layer in made.net.modules():
            for name, value in layer._parameters.items():
                layer._parameters[name] = value.detach().requires_grad_()
        return made


class Fails(Scaled):
    def adapt(self, loss: Tensor) -> None:
        raise ValueError("no such thing")


class Hidden:
    """A clone that shows no parameters."""

    def __init__(self, clone: Scaled):
        self.clone, self.adapt = clone, clone.adapt

    def __call__(self, x: Tensor) -> Tensor:
        return self.clone(x)

    def named_parameters(self) -> list[Any]:
        return []


class Hides(Scaled):
    def clone(self) -> Any:
        return Hidden(super().clone())


@NEEDS_LEARN2LEARN
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (CutsTheGraph, "Cuts.*cannot adapt.*without influence on the output: net.0.bias"),
        (Fails, r"Fails failed to clone\(\), adapt\(loss\) or predict: no such thing"),
    ],
    ids=["cuts the graph", "fails"],
)
def test_learners_that_break_the_interface_are_refused(kind: Any, words: str) -> None:
    rate = nn.Parameter(torch.tensor(-0.5, dtype=torch.float64))
    with pytest.raises(PluginError, match=words):
        started(kind(net(), rate), WIDE)


@NEEDS_LEARN2LEARN
def test_an_export_that_would_not_predict_as_adapted_is_refused() -> None:
    rate = nn.Parameter(torch.tensor(-0.5, dtype=torch.float64))
    algorithm, params = started(Hides(net(), rate), WIDE, steps=1)
    with pytest.raises(PluginError, match="Hides cannot be exported"):
        algorithm.export(params, toy_tasks(WIDE, n_tasks=1))


# -- any module ----------------------------------------------------------------------


@NEEDS_LEARN2LEARN
@EACH
def test_unused_and_frozen_parameters_are_named_with_the_option_that_allows_them(
    algorithm: str,
) -> None:
    options = {"steps": 2, **ALGORITHMS[algorithm]}
    given = PartlyUsed()
    given.output.bias.requires_grad_(False)
    with pytest.raises(PluginError) as caught:
        started(given, WIDE, **options)
    words = ("learn2learn: PartlyUsed", "frozen: output.bias", "spare.bias, spare.weight")
    assert all(word in str(caught.value) for word in (*words, "allow_unused: true"))

    inner, params = started(given, WIDE, allow_unused=True, **options)
    assert not any("spare" in name or "output.bias" in name for name in params)
    laws.check_meta_gradient(inner, params, toy_tasks(WIDE))
    exported = inner.export(params, toy_tasks(WIDE, n_tasks=1))
    assert torch.equal(exported.output.bias, given.output.bias)
    assert not torch.equal(exported.output.weight, given.output.weight)


@NEEDS_LEARN2LEARN
def test_a_head_that_is_frozen_cannot_adapt() -> None:
    given = PartlyUsed()
    given.output.requires_grad_(False)
    with pytest.raises(PluginError, match="'output' has no parameter left to adapt"):
        started(given, WIDE, allow_unused=True, adapt="head")


class Tied(nn.Module):
    """x -> O tanh(W W x), one weight used twice; or with O tied to W too."""

    def __init__(self, outputs: int, *, head: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(9, 9), nn.Linear(9, 9)
        self.second.weight = self.first.weight
        self.output = nn.Linear(9, outputs)
        if head:
            self.output.weight = self.first.weight
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.second(self.first(x))))


@NEEDS_LEARN2LEARN
@pytest.mark.parametrize("algorithm", ["MAML", "ANIL", "meta-curvature", "MetaSGD, head"])
def test_tied_weights_stay_tied(algorithm: str) -> None:
    inner, params = started(Tied(3), WIDE, steps=2, **ALGORITHMS[algorithm])
    assert "second.weight" not in params
    laws.check_meta_gradient(inner, params, toy_tasks(WIDE))
    exported = inner.export(params, toy_tasks(WIDE, n_tasks=1))
    assert exported.first.weight is exported.second.weight


@NEEDS_LEARN2LEARN
def test_tied_weights_that_would_come_apart_are_refused() -> None:
    with pytest.raises(PluginError, match=r"tied parameters \(second.weight.*MAML or GBML"):
        started(Tied(3), WIDE, algorithm="MetaSGD")
    nine = TaskShape("classification", (9,), 9, 1, 1)
    with pytest.raises(PluginError, match="'output' of Tied shares parameters with the rest"):
        started(Tied(9, head=True), nine, adapt="head")


@NEEDS_LEARN2LEARN
def test_the_head_is_found_by_what_runs_last() -> None:
    class Backwards(nn.Module):
        """Its layers stand in another order than they run in."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleDict({"last": nn.Linear(4, 3), "first": nn.Linear(9, 4)})
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.layers["last"](torch.tanh(self.layers["first"](x)))

    inner, params = started(Backwards(), WIDE, adapt="head", steps=1)
    state = inner.adapt(params, toy_tasks(WIDE))
    moved = {name for name in params if (state[name] - params[name]).abs().max() > 0}
    assert moved == {"layers.last.weight", "layers.last.bias"}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(9, 9).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv1d(1, 3, 9).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).flatten(1)


@NEEDS_LEARN2LEARN
@pytest.mark.parametrize(
    ("make", "inputs", "outputs", "words"),
    [
        (lambda: net().append(nn.Softmax(1)), (9,), 3, "Sequential goes on after '2'"),
        (Twice, (9,), 9, "Twice goes on after 'layer', or runs it more than once"),
        (Convolution, (1, 9), 3, "Convolution runs none"),
    ],
    ids=["softmax", "twice", "no affine layer"],
)
def test_models_without_a_head_are_refused(
    make: Any, inputs: tuple[int, ...], outputs: int, words: str
) -> None:
    with pytest.raises(PluginError, match=words):
        started(make(), TaskShape("classification", inputs, outputs, 2, 2), adapt="head")


@NEEDS_LEARN2LEARN
def test_a_model_that_is_one_affine_layer_is_its_own_head() -> None:
    given = nn.Linear(9, 3).double()
    whole, params = started(given, WIDE, steps=2)
    head, _ = started(given, WIDE, steps=2, adapt="head")
    tasks = toy_tasks(WIDE)
    assert torch.equal(whole.losses(params, tasks), head.losses(params, tasks))


@NEEDS_LEARN2LEARN
def test_gbml_names_the_shape_it_cannot_transform() -> None:
    shape = TaskShape("classification", (1, 9), 3, 2, 2)
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(14, 3)).double()
    with pytest.raises(PluginError, match=r"meta_curvature serves.*shape \[2, 1, 3\]"):
        started(model, shape, algorithm="GBML")
    with pytest.raises(PluginError, match=r"kronecker serves.*shape \[2, 1, 3\]"):
        started(model, shape, **ALGORITHMS["Kronecker"])


@NEEDS_LEARN2LEARN
def test_other_models_tasks_and_calls_are_refused() -> None:
    with pytest.raises(PluginError, match=r"model is a Model or an nn\.Module, not set"):
        made(set())  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="learn2learn: call init"):
        made().losses({}, toy_tasks(WIDE))
    inner, params = started("mlp", WIDE)
    with pytest.raises(PluginError, match=r"learn2learn: initialised for 3 .*have 5"):
        inner.losses(params, toy_tasks(TaskShape("classification", (9,), 5, 2, 2)))
    with pytest.raises(PluginError, match="one task; found a batch of 3"):
        inner.export(params, toy_tasks(WIDE))
    with pytest.raises(PluginError, match=r"learn2learn: Sequential gives \[4, 3\].*\[4, 5\]"):
        started(net(), TaskShape("classification", (9,), 5, 2, 2))


@NEEDS_LEARN2LEARN
def test_buffers_stay_and_dropout_is_off() -> None:
    given = net(nn.BatchNorm1d(4), nn.Dropout(0.5))
    given(torch.randn(8, 9, dtype=torch.float64))
    before = copy.deepcopy(given.state_dict())
    inner, params = started(given, WIDE, steps=2, **ALGORITHMS["MetaSGD"])
    tasks = toy_tasks(WIDE)
    assert torch.equal(inner.losses(params, tasks), inner.losses(params, tasks))
    for name, value in given.state_dict().items():
        assert torch.equal(value, before[name])
    assert not inner.transductive


@NEEDS_LEARN2LEARN
@pytest.mark.parametrize("algorithm", ["MAML", "MetaSGD"])
def test_diagnose_names_the_inner_step_and_the_tensor(algorithm: str) -> None:
    inner, params = started("mlp", WIDE, steps=3, lr=1e200, **ALGORITHMS[algorithm])
    tasks = toy_tasks(WIDE)
    assert not inner.losses(params, tasks).isfinite().all()
    assert inner.diagnose(params, tasks) == "inner step 1, tensor 'support loss'"
    inner, params = started(Tanh(), WIDE, steps=3, **ALGORITHMS[algorithm])
    assert inner.diagnose(params, tasks) is None
    bad = {**params, "2.bias": torch.full((3,), torch.nan, dtype=torch.float64)}
    assert inner.diagnose(bad, tasks) == "inner step 0, tensor '2.bias'"
    tasks.query_x[2, 0, 0] = torch.nan
    assert inner.diagnose(params, tasks) == "inner step 3, tensor 'query loss'"


# -- without learn2learn -------------------------------------------------------------


def test_without_learn2learn_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        monkeypatch.delitem(sys.modules, name)
    for module in (peer, optional):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r'pip install --no-deps "learn2learn==0\.2\.0"'):
        made()
    (problem,) = peer.missing(Learn2learnOptions(), Context())
    assert "learn2learn==0.2.0" in problem


@NEEDS_LEARN2LEARN
def test_its_algorithms_import_without_its_other_dependencies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "learn2learn.vision", None)  # its import now fails
    assert peer.missing(Learn2learnOptions(), Context()) == []
    for algorithm in ("ANIL", "MetaSGD", "Kronecker"):
        inner, params = started("conv4", IMAGES, steps=1, **ALGORITHMS[algorithm])
        meta_gradient(inner, params, toy_tasks(IMAGES))


@NEEDS_LEARN2LEARN
def test_an_installation_that_cannot_be_imported_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        monkeypatch.delitem(sys.modules, name)

    def broken(name: str) -> Any:
        if name == "learn2learn.algorithms":
            raise ImportError("no compiled part")
        return import_module(name)

    monkeypatch.setattr(peer, "import_module", broken)
    with pytest.raises(
        PluginError,
        match=r"its algorithms cannot be imported \(no compiled part\); install it anew",
    ):
        made()
