"""maml: options, what it refuses and why, any module, learn2learn's absence, diagnosis."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from metaforge import optional
from metaforge.components import Context
from metaforge.contracts import Model
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.inner_algorithms import fresh_parameters, meta_gradient, toy_tasks
from metaforge_learn2learn import peer
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions, missing
from tests.plugins.maml_cases import CONTEXT, IMAGES, WIDE, PartlyUsed, Tanh, maml, started

BACKENDS = pytest.mark.parametrize("backend", ["vectorized", "learn2learn"])


def module(*after: nn.Module) -> nn.Sequential:
    """A float64 chain from 9 inputs to 3 outputs that no closed form serves."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(9, 4), *after, nn.Tanh(), nn.Linear(4, 3)).double()


# -- options and description ---------------------------------------------------------


def test_describe_says_what_runs() -> None:
    algorithm, _ = started("linear", WIDE, steps=5)
    assert algorithm.describe() == {
        "backend": "vectorized",
        "implementation": "gram",
        "order": 2,
        "steps": 5,
        "lr": 0.4,
    }
    algorithm, _ = started("linear", WIDE, order=1, backend="learn2learn")
    assert algorithm.describe()["backend"] == "learn2learn"
    assert algorithm.describe()["order"] == algorithm.order == 1


@pytest.mark.parametrize(
    "options",
    [{"stpes": 5}, {"steps": -1}, {"lr": 0.0}, {"order": 3}, {"backend": "fast"}],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MamlOptions.model_validate(options)


def test_chunks_are_not_learn2learns() -> None:
    with pytest.raises(ValidationError, match="support_chunk"):
        MamlOptions(backend="learn2learn", support_chunk=5)


def test_the_seed_alone_decides_theta() -> None:
    def theta() -> dict[str, Tensor]:
        return maml("mlp").init(WIDE, torch.Generator().manual_seed(3))

    state = torch.get_rng_state()
    first, second = theta(), theta()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {value.dtype for value in first.values()} == {torch.float64}


def test_a_support_chunk_gives_the_same_weights() -> None:
    whole, params = started("mlp", WIDE, steps=3)
    tasks = toy_tasks(WIDE, unequal=True)
    expected = whole.adapt(params, tasks)
    for size in (1, 4, 100):
        chunked, _ = started("mlp", WIDE, steps=3, support_chunk=size)
        with torch.no_grad():
            found = chunked.adapt(params, tasks)
        for name in params:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-12, atol=1e-12)


def test_a_support_chunk_is_refused_where_it_would_change_the_model() -> None:
    with pytest.raises(PluginError, match="support_chunk"):
        started("conv4 batch norm", IMAGES, support_chunk=2)


# -- tasks it cannot serve -----------------------------------------------------------


def test_init_comes_first() -> None:
    with pytest.raises(PluginError, match="call init"):
        maml("linear").losses({}, toy_tasks(WIDE))


def test_other_ways_are_refused_by_name() -> None:
    algorithm, params = started("linear", WIDE)
    five = toy_tasks(TaskShape("classification", (9,), 5, 2, 2))
    with pytest.raises(PluginError, match=r"initialised for 3 .*have 5"):
        algorithm.losses(params, five)


def test_export_takes_one_task() -> None:
    algorithm, params = started("linear", WIDE)
    with pytest.raises(PluginError, match="one task; found a batch of 3"):
        algorithm.export(params, toy_tasks(WIDE))


# -- any module ----------------------------------------------------------------------


def test_the_module_given_stays_as_it_is() -> None:
    given = module(nn.BatchNorm1d(4), nn.Dropout(0.5))
    given(torch.randn(8, 9, dtype=torch.float64))
    given.train()
    before = copy.deepcopy(given.state_dict())
    algorithm = maml(given, steps=2)
    params = fresh_parameters(algorithm, WIDE)
    for name, value in given.named_parameters():
        assert torch.equal(params[name], value), "theta starts from the module's own values"
    meta_gradient(algorithm, params, toy_tasks(WIDE))
    buffers = dict(algorithm.module.named_buffers())
    for name, value in given.state_dict().items():
        assert torch.equal(value, before[name])
        assert name not in buffers or torch.equal(buffers[name], before[name])
    assert given.training
    assert not algorithm.transductive, "running statistics are constants"


def test_init_works_without_gradient_mode() -> None:
    with torch.no_grad():
        for model in ("mlp", Tanh()):
            assert maml(model).init(WIDE, torch.Generator())


@BACKENDS
def test_dropout_is_off(backend: str) -> None:
    given = module(nn.Dropout(0.5))
    algorithm = maml(given, backend=backend, steps=2)
    params = fresh_parameters(algorithm, WIDE)
    tasks = toy_tasks(WIDE)
    assert torch.equal(algorithm.losses(params, tasks), algorithm.losses(params, tasks))


def test_batch_statistics_make_it_transductive() -> None:
    given = module(nn.BatchNorm1d(4, track_running_stats=False))
    algorithm = maml(given, steps=1)
    fresh_parameters(algorithm, WIDE)
    assert algorithm.transductive


def test_statistics_that_saw_no_data_are_refused() -> None:
    with pytest.raises(PluginError, match=r"'1' has running statistics.*track_running_stats"):
        started(module(nn.BatchNorm1d(4)), WIDE)


def test_a_model_that_hides_that_it_is_transductive_is_refused() -> None:
    class Hidden(Model):
        def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
            return module(nn.BatchNorm1d(4, track_running_stats=False))

    with pytest.raises(PluginError, match="Hidden says transductive = False"):
        started(Hidden(), WIDE)


class Tied(nn.Module):
    """x -> W2 tanh(W W x): one weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(9, 9)
        self.second = nn.Linear(9, 9)
        self.second.weight = self.first.weight
        self.output = nn.Linear(9, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.second(self.first(x))))


class TiedByHand(nn.Module):
    """The same function of untied storage: what the gradient of ``Tied`` must equal."""

    def __init__(self, tied: Tied):
        super().__init__()
        self.weight = nn.Parameter(tied.first.weight.detach().clone())
        self.biases = nn.ParameterList([tied.first.bias, tied.second.bias])
        self.output = tied.output

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.linear(x, self.weight, self.biases[0])
        hidden = nn.functional.linear(hidden, self.weight, self.biases[1])
        return self.output(torch.tanh(hidden))


@BACKENDS
def test_tied_weights_stay_tied(backend: str) -> None:
    tied, by_hand = maml(Tied(), backend=backend), maml(TiedByHand(Tied()), backend=backend)
    params, others = fresh_parameters(tied, WIDE), fresh_parameters(by_hand, WIDE)
    assert "second.weight" not in params
    tasks = toy_tasks(WIDE)
    found, expected = meta_gradient(tied, params, tasks), meta_gradient(by_hand, others, tasks)
    torch.testing.assert_close(found["first.weight"], expected["weight"], rtol=1e-10, atol=1e-10)
    exported = tied.export(params, tasks[:1])
    assert exported.first.weight is exported.second.weight


def test_tied_affine_layers_are_no_closed_form() -> None:
    square = TaskShape("classification", (3,), 3, 2, 2)
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)).double()
    layers[2].weight = layers[0].weight
    algorithm, _ = started(layers, square)
    assert algorithm.describe()["implementation"] == "vmap"


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m[0].register_forward_hook(lambda *_: None),
        lambda m: nn.utils.parametrizations.weight_norm(m[0]),
        lambda m: m.insert(1, nn.Tanh()),
    ],
    ids=["hook", "parametrisation", "tanh"],
)
def test_a_chain_that_computes_something_else_is_no_closed_form(change: Any) -> None:
    layers = nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    assert started(layers, WIDE)[0].describe()["implementation"] == "gram"
    change(layers)
    assert started(layers, WIDE)[0].describe()["implementation"] in ("vmap", "loop")


@BACKENDS
def test_unused_and_frozen_parameters_are_named_with_the_option_that_allows_them(
    backend: str,
) -> None:
    given = PartlyUsed()
    given.body.bias.requires_grad_(False)
    with pytest.raises(PluginError) as caught:
        started(given, WIDE, backend=backend)
    message = str(caught.value)
    for words in ("frozen: body.bias", "spare.bias, spare.weight", "allow_unused: true"):
        assert words in message

    algorithm, params = started(given, WIDE, backend=backend, allow_unused=True)
    assert set(params) == {"body.weight", "output.weight", "output.bias"}
    tasks = toy_tasks(WIDE)
    assert all(value.abs().max() > 0 for value in meta_gradient(algorithm, params, tasks).values())
    exported = algorithm.export(params, tasks[:1])
    assert torch.equal(exported.body.bias, given.body.bias)
    assert not torch.equal(exported.body.weight, given.body.weight)


def test_both_backends_hold_the_same_parameters_constant() -> None:
    given = PartlyUsed()
    given.body.bias.requires_grad_(False)
    tasks = toy_tasks(WIDE)
    gradients = []
    for backend in ("vectorized", "learn2learn"):
        algorithm, params = started(given, WIDE, backend=backend, allow_unused=True, steps=2)
        gradients.append(meta_gradient(algorithm, params, tasks))
    for name, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][name], rtol=1e-10, atol=1e-10)


def test_nothing_to_adapt_is_refused() -> None:
    with pytest.raises(PluginError, match="Flatten has no parameters"):
        started(nn.Flatten(), WIDE)
    given = nn.Linear(9, 3).double().requires_grad_(False)
    with pytest.raises(PluginError, match="no parameter left"):
        started(given, WIDE, allow_unused=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (nn.Linear(9, 4), r"gives \[4, 4\].*expected \[4, 3\]"),
        (nn.Linear(8, 3), r"failed on inputs of shape \[4, 9\]"),
        (nn.LSTM(9, 3), "gives tuple"),
    ],
    ids=["outputs", "inputs", "not a tensor"],
)
def test_a_module_of_another_shape_is_refused(given: nn.Module, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        started(given.double(), WIDE)


def test_a_model_is_a_model_or_a_module() -> None:
    with pytest.raises(PluginError, match="not str"):
        Maml(MamlOptions(), CONTEXT, model="linear")  # type: ignore[arg-type]


def test_a_module_that_vmap_refuses_runs_by_loop() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = nn.Linear(9, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.output(x) if x.sum() > 0 else self.output(-x)

    algorithm, params = started(Branches(), WIDE)
    assert algorithm.describe()["implementation"] == "loop"
    meta_gradient(algorithm, params, toy_tasks(WIDE))


# -- evaluation ----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["mlp", "conv4", Tanh()], ids=["gram", "loop", "vmap"])
@BACKENDS
def test_evaluation_needs_no_gradient_mode(model: Any, backend: str) -> None:
    shape = IMAGES if model == "conv4" else WIDE
    algorithm, params = started(model, shape, steps=2, backend=backend)
    tasks = toy_tasks(shape)
    expected = algorithm.predict(params, tasks, tasks.query_x)
    with torch.no_grad():
        found = algorithm.predict(params, tasks, tasks.query_x)
        state = algorithm.adapt(params, tasks)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    assert not found.requires_grad
    assert not any(value.requires_grad for value in state.values())
    assert any((state[name][0] - params[name]).abs().max() > 0 for name in params)


# -- diagnosis -----------------------------------------------------------------------


def test_diagnose_names_the_inner_step_and_the_tensor() -> None:
    algorithm, params = started("mlp", WIDE, steps=3, lr=1e200)
    tasks = toy_tasks(WIDE)
    assert not algorithm.losses(params, tasks).isfinite().all()
    assert algorithm.diagnose(params, tasks) == "inner step 1, tensor 'support loss'"


def test_diagnose_sees_the_parameters_and_the_inputs() -> None:
    algorithm, params = started("linear", WIDE, steps=3)
    tasks = toy_tasks(WIDE)
    assert algorithm.diagnose(params, tasks) is None
    bad = {**params, "output.bias": torch.full((3,), torch.nan, dtype=torch.float64)}
    assert algorithm.diagnose(bad, tasks) == "inner step 0, tensor 'output.bias'"
    tasks.support_x[2, 0, 0] = torch.inf
    assert algorithm.diagnose(params, tasks) == "inner step 0, tensor 'support loss'"
    tasks = toy_tasks(WIDE)
    tasks.query_x[2, 0, 0] = torch.nan
    assert algorithm.diagnose(params, tasks) == "inner step 3, tensor 'query loss'"


# -- learn2learn ---------------------------------------------------------------------


@pytest.fixture
def without_learn2learn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        monkeypatch.delitem(sys.modules, name)
    for module in (peer, optional):
        monkeypatch.setattr(module, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_learn2learn")
def test_without_learn2learn_the_message_has_the_command_and_the_rest_works() -> None:
    with pytest.raises(PluginError, match=r'pip install --no-deps "learn2learn==0\.2\.0"'):
        maml("linear", backend="learn2learn")
    (problem,) = missing(MamlOptions(backend="learn2learn"), Context())
    assert "learn2learn==0.2.0" in problem
    assert missing(MamlOptions(), Context()) == []
    for model, shape in (("linear", WIDE), ("conv4", IMAGES), (Tanh(), WIDE)):
        algorithm, params = started(model, shape, steps=1)
        meta_gradient(algorithm, params, toy_tasks(shape))
    assert "learn2learn" not in sys.modules


def test_learn2learns_algorithms_import_without_its_other_dependencies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "learn2learn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "learn2learn.vision", None)  # its import now fails
    assert peer.load().algorithms.MAML.__name__ == "MAML"
    assert missing(MamlOptions(backend="learn2learn"), Context()) == []


def test_tasks_may_come_with_labels_of_a_sliced_batch() -> None:
    """A batch sliced out of a larger one keeps its number of outputs."""
    algorithm, params = started("linear", WIDE)
    tasks = toy_tasks(WIDE)
    one_class = TaskBatch(tasks.support_x[:, :1], tasks.support_y[:, :1], outputs=3)
    assert algorithm.predict(params, one_class, tasks.query_x).shape == (3, 6, 3)
