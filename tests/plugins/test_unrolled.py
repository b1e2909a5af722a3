"""unrolled: options, what it refuses and why, any module, higher's absence."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any, get_args

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
from metaforge_unrolled import peer
from metaforge_unrolled.algorithm import RULES as TORCH_RULES
from metaforge_unrolled.options import SETTINGS, UnrolledOptions
from tests.plugins.maml_cases import CONTEXT, WIDE, Tanh
from tests.plugins.unrolled_cases import NEEDS_HIGHER, RULES, made, started

# -- options -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": "adamw"}, "higher has no AdamW"),
        ({"optimizer": "AdamW"}, "use adam, where weight_decay is an L2 penalty"),
        ({"optimizer": "nadam"}, "higher has no NAdam"),
        ({"optimizer": "momentum"}, "say optimizer: sgd with momentum: 0.9"),
        ({"optimizer": "lbfgs"}, "'sgd', 'adam'"),
        ({"optimizer": 3}, "'sgd', 'adam'"),
        (
            {"optimizer": "adam", "momentum": 0.9, "rho": 0.9},
            "momentum, rho: not a setting of.*eps",
        ),
        ({"betas": (0.9, 0.999)}, "betas: not a setting of optimizer: sgd, which has momentum"),
        ({"dampening": 0.1}, "do nothing without momentum"),
        ({"nesterov": True, "momentum": 0.0}, "do nothing without momentum"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "dampening of 0"),
        ({"optimizer": "adam", "betas": (0.9, 1.0)}, "less than 1"),
        ({"optimizer": "rmsprop", "alpha": 1.0}, "decay below 1"),
        ({"optimizer": "rmsprop", "centered": True}, "NaN wherever.*use order: 1"),
        ({"optimizer": "rprop", "etas": (1.2, 0.5)}, "etas"),
        ({"optimizer": "rprop", "step_sizes": (50, 1e-6)}, "the least comes first"),
        ({"lr": 0.0}, "lr"),
        ({"order": 0}, "order"),
        ({"momentm": 0.9}, "momentm"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        UnrolledOptions.model_validate(options)


def test_the_tables_name_the_same_optimisers() -> None:
    offered = get_args(UnrolledOptions.model_fields["optimizer"].annotation)
    assert set(offered) == set(SETTINGS) == set(TORCH_RULES)


@NEEDS_HIGHER
def test_every_optimiser_of_higher_is_offered() -> None:
    assert set(TORCH_RULES.values()) == set(peer.optimizers()._opt_mapping)


#: A value of each setting that is not its default; betas and the like change by either entry.
OTHER: dict[str, Any] = {
    "momentum": 0.5,
    "dampening": 0.3,
    "nesterov": True,
    "weight_decay": 0.1,
    "betas": (0.5, 0.9),
    "eps": 1e-2,
    "amsgrad": True,
    "lr_decay": 0.5,
    "initial_accumulator_value": 0.5,
    "rho": 0.5,
    "lambd": 0.5,
    "alpha": 0.3,
    "centered": True,
    "etas": (0.1, 2.0),
    "step_sizes": (1e-3, 0.02),
}


@NEEDS_HIGHER
@pytest.mark.parametrize(
    ("optimizer", "setting"), [(o, name) for o, names in SETTINGS.items() for name in names]
)
def test_every_setting_does_something(optimizer: str, setting: str) -> None:
    base: dict[str, Any] = {"momentum": 0.9} if setting in ("dampening", "nesterov") else {}
    base |= {"order": 1} if setting == "centered" else {}
    tasks = toy_tasks(WIDE)
    # far enough for gradients to shrink, which amsgrad waits for
    fixed: dict[str, Any] = {"optimizer": optimizer, "steps": 20, "lr": 0.1, **base}
    plain, params = started("mlp", WIDE, **fixed)
    changed, _ = started("mlp", WIDE, **fixed, **{setting: OTHER[setting]})
    with torch.no_grad():
        before, after = plain.losses(params, tasks), changed.losses(params, tasks)
    assert not torch.allclose(before, after, rtol=1e-6)


@NEEDS_HIGHER
def test_describe_says_what_runs() -> None:
    assert made(steps=2, momentum=0.9).describe() == {
        "optimizer": "sgd",
        "order": 2,
        "steps": 2,
        "lr": 0.05,
        "momentum": 0.9,
        "implementation": "higher",
    }
    assert made(optimizer="adam", eps=1e-3).describe()["eps_convention"] == "tf1"


@NEEDS_HIGHER
def test_it_is_created_by_name() -> None:
    inner = metaforge.create(
        "inner_algorithm", "unrolled", context=CONTEXT, model="mlp", optimizer="adam"
    )
    params = inner.init(WIDE, torch.Generator())
    assert set(params) == {"hidden0.weight", "hidden0.bias", "output.weight", "output.bias"}
    with pytest.raises(RecipeError, match="optimizer: adamw: higher has no AdamW"):
        metaforge.create("inner_algorithm", "unrolled", optimizer="adamw")


@NEEDS_HIGHER
def test_it_can_be_pickled() -> None:
    inner, params = started(nn.Linear(9, 3).double(), WIDE, optimizer="adam")
    tasks = toy_tasks(WIDE)
    again = pickle.loads(pickle.dumps(inner))
    assert torch.equal(again.losses(params, tasks), inner.losses(params, tasks))


# -- any module ----------------------------------------------------------------------


class Odd(nn.Module):
    """One layer is not used, and one weight is used twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(9, 9), nn.Linear(9, 9)
        self.second.weight = self.first.weight
        self.spare, self.output = nn.Linear(2, 2), nn.Linear(9, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.tanh(self.second(self.first(x))))


@NEEDS_HIGHER
@pytest.mark.parametrize("rule", ["sgd, momentum", "adam, betas"])
def test_unused_frozen_and_tied_parameters(rule: str) -> None:
    given = Odd()
    given.first.bias.requires_grad_(False)
    with pytest.raises(PluginError) as caught:
        started(given, WIDE, **RULES[rule])
    words = ("unrolled: Odd", "frozen: first.bias", "spare.bias, spare.weight", "allow_unused")
    assert all(word in str(caught.value) for word in words)

    inner, params = started(given, WIDE, steps=2, allow_unused=True, **RULES[rule])
    assert set(params) == {"first.weight", "second.bias", "output.weight", "output.bias"}
    laws.check_meta_gradient(inner, params, toy_tasks(WIDE))
    exported = inner.export(params, toy_tasks(WIDE, n_tasks=1))
    assert torch.equal(exported.first.bias, given.first.bias)
    assert exported.first.weight is exported.second.weight


@NEEDS_HIGHER
def test_the_module_given_stays_as_it_is() -> None:
    torch.manual_seed(0)
    given = nn.Sequential(
        nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 3)
    ).double()
    given(torch.randn(8, 9, dtype=torch.float64))
    before = copy.deepcopy(given.state_dict())
    inner, params = started(given, WIDE, steps=2, optimizer="rmsprop")
    tasks = toy_tasks(WIDE)
    assert torch.equal(inner.losses(params, tasks), inner.losses(params, tasks))
    for name, value in given.state_dict().items():
        assert torch.equal(value, before[name])
    assert given.training
    assert not inner.transductive


@NEEDS_HIGHER
@pytest.mark.parametrize("rule", ["sgd, momentum", "adam", "adagrad", "asgd"])
def test_float32_is_float64_rounded(rule: str) -> None:
    tasks = toy_tasks(WIDE, unequal=True)
    inner, params = started("mlp", WIDE, steps=3, **{**RULES[rule], "eps": None})
    expected = meta_gradient(inner, params, tasks)
    single = {name: value.detach().float().requires_grad_() for name, value in params.items()}
    inner.module.float()
    for name, found in meta_gradient(inner, single, tasks.to(dtype=torch.float32)).items():
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected[name], rtol=2e-3, atol=1e-4)


@NEEDS_HIGHER
def test_other_models_tasks_and_calls_are_refused() -> None:
    with pytest.raises(PluginError, match=r"unrolled: model is a Model or an nn\.Module, not set"):
        made(set())  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="unrolled: call init"):
        made().predict({}, toy_tasks(WIDE), toy_tasks(WIDE).support_x)
    inner, params = started("mlp", WIDE)
    with pytest.raises(PluginError, match=r"unrolled: initialised for 3 .*have 5"):
        inner.losses(params, toy_tasks(TaskShape("classification", (9,), 5, 2, 2)))
    with pytest.raises(PluginError, match="one task; found a batch of 3"):
        inner.export(params, toy_tasks(WIDE))


@NEEDS_HIGHER
def test_diagnose_names_the_inner_step_and_the_tensor() -> None:
    inner, params = started("mlp", WIDE, steps=3, lr=1e200)
    tasks = toy_tasks(WIDE)
    assert not inner.losses(params, tasks).isfinite().all()
    assert inner.diagnose(params, tasks) == "inner step 1, tensor 'support loss'"
    inner, params = started(Tanh(), WIDE, steps=3, optimizer="adam")
    assert inner.diagnose(params, tasks) is None
    bad = {**params, "2.bias": torch.full((3,), torch.nan, dtype=torch.float64)}
    assert inner.diagnose(bad, tasks) == "inner step 0, tensor '2.bias'"
    tasks.query_x[2, 0, 0] = torch.nan
    assert inner.diagnose(params, tasks) == "inner step 3, tensor 'query loss'"


# -- without higher ------------------------------------------------------------------


def test_without_higher_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "higher"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(optional, "find_spec", lambda name: None)
    with pytest.raises(
        PluginError, match=r'(?s)unrolled: .*pip install --no-deps "higher==0\.2\.1"'
    ):
        made()
    (problem,) = peer.missing(UnrolledOptions(), Context())
    assert "higher==0.2.1" in problem
    assert "higher" not in sys.modules
