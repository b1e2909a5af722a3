"""``metaforge plugins check`` and pytest's form of it: every built-in conforms, what is broken is
named, and what matches nothing fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from metaforge import registry
from metaforge.cli import show
from metaforge.contracts import Backbone, Model, TaskWeighting
from metaforge.errors import PluginError, RecipeError
from metaforge.image_files import ImageForm
from metaforge.network_backbone import NetworkBackbone
from metaforge.optional import HIGHER, LEARN2LEARN
from metaforge.plugins import host
from metaforge.tasks import TaskShape
from metaforge.testing import conformance, models
from metaforge.testing.conformance import SHAPES

#: Plugins whose data sets need files, or draw all of the glyphs: their laws are in tests/data and
#: tests/glyphs. Those of ``pretrained`` are in test_pretrained.
_OF_FILES = {
    *("arrays", "fewshot_images", "glyphs", "image_folder", "leo_embeddings", "mixture", "table"),
    *("pretrained", "torch"),
}
#: Options without which a component cannot be made; small networks.
_NEEDED = {
    "backbones": {
        "conv4": {"weights": "none", "size": 16, "filters": 4},
        "resnet12": {"weights": "none", "size": 16, "widths": [4, 8]},
    }
}
_OPTIONAL = {"learn2learn": LEARN2LEARN.missing, "unrolled": HIGHER.missing}
PLUGINS = [p.name for p in host().plugins if p.distribution == "metaforge"]
VECTORS = SHAPES["classification"][0]

BROKEN = '''
    """A kernel that is none, and a weighting that is."""

    import torch
    from metaforge import hookimpl
    from metaforge.components import Component
    from metaforge.contracts import TaskKernel, TaskWeighting


    class Skew(TaskKernel):
        def signature(self, tasks):
            return tasks.support_x.flatten(2).double().sum(1)

        def gram(self, a, b):
            return a.sum(1)[:, None] - b.sum(1)

        def diag(self, a):
            return torch.zeros(len(a), dtype=torch.float64)


    class Even(TaskWeighting):
        needs_gram = False
        target_specific = False

        def fit(self, gram, groups, *, kind="classification"):
            return None

        def weights(self, state, cross, self_):
            return torch.full_like(cross, 1 / len(cross))


    @hookimpl
    def metaforge_task_kernels():
        return [Component(kind="task_kernel", name="skew", target="skewed:Skew")]


    @hookimpl
    def metaforge_task_weightings():
        return [Component(kind="task_weighting", name="even", target="skewed:Even")]
'''


@pytest.mark.parametrize("name", [name for name in PLUGINS if name not in _OF_FILES])
def test_built_in_plugins_conform(name, monkeypatch):
    if missing := _OPTIONAL.get(name, ""):
        pytest.skip(missing)
    monkeypatch.setattr(conformance, "_DATASET_TASKS", 50)
    found = conformance.laws_of_plugin(name, _NEEDED.get(name))
    assert found
    for key, laws in found.items():
        assert len({law.name for law in laws}) == len(laws) > 2, key
        for law in laws:
            if law.name != "processes":  # tests/data starts them
                law.check()


def metaforge(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    (folder / "skewed.py").write_text(dedent(BROKEN))
    return subprocess.run(
        [sys.executable, "-m", "metaforge", "--plugin", "skewed.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_broken_laws_are_named_component_by_component_and_the_command_fails(tmp_path):
    done = metaforge(tmp_path, "plugins", "check", "skewed")
    assert done.returncode == PluginError.exit_code
    assert "task_weighting even: 19 of 19 laws" in done.stdout
    assert "broken: gram, bank: ordinary" in done.stdout
    assert "symmetric, gram(a, b) = gram(b, a)^T" in done.stdout
    assert "breaks" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plugins", "check", "skew"], "no plugin has the name 'skew'; did you mean 'skewed'?"),
        (["plugins", "show", "kernel"], "did you mean 'kernels'?"),
        (["plugins", "check", "skewed", "evn.x=1"], "no component 'evn'; did you mean 'even'?"),
        (["plugins", "check", "skewed", "x=1"], "expected COMPONENT.KEY=VALUE"),
        (["-p", "no:ls", "plugins", "check", "ls"], "is blocked: blocked by -p no:ls"),
    ],
)
def test_what_cannot_be_checked_is_an_error(tmp_path, arguments, words):
    done = metaforge(tmp_path, *arguments)
    assert done.returncode == PluginError.exit_code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_options_that_a_component_lacks_are_a_mistake_of_the_command(tmp_path):
    done = metaforge(tmp_path, "plugins", "check", "kernels", "gaussian.widht=2")
    assert done.returncode == RecipeError.exit_code
    assert "did you mean 'width'" in done.stderr
    assert not done.stdout


def test_what_cannot_be_made_without_options_is_one_broken_law():
    (law,) = conformance.laws_of("dataset", "mixture")
    with pytest.raises(AssertionError, match="sources"):
        law.check()


LEAVES = """
import torch
from metaforge import hookimpl
from metaforge.components import Component
from metaforge.contracts import TaskWeighting


class Bad(TaskWeighting):
    needs_gram = False
    target_specific = False

    def fit(self, gram, groups, *, kind="classification"):
        DO

    def weights(self, state, cross, self_):
        return torch.full_like(cross, 1 / len(cross))


@hookimpl
def metaforge_task_weightings():
    return [Component(kind="task_weighting", name="bad", target="leaves:Bad")]
"""


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("torch.set_num_threads(3)", "settings of PyTorch are left alone: changed threads"),
        ("torch.set_default_dtype(torch.float64)", "changed default dtype from torch.float32"),
    ],
)
def test_what_leaves_the_program_or_changes_its_settings_is_broken(tmp_path, does, words):
    (tmp_path / "leaves.py").write_text(LEAVES.replace("DO", does))
    command = ["--plugin", "leaves.py", "plugins", "check", "leaves"]
    done = metaforge(tmp_path, *command)
    assert done.returncode == PluginError.exit_code, done.stdout
    assert "task_weighting bad: 0 of" in done.stdout
    assert words in done.stdout


def test_toy_inputs_are_such_as_a_nested_model_takes():
    laws = conformance.laws_of("inner_algorithm", "maml", {"model": {"use": "conv4", "filters": 2}})
    (outputs,) = [law for law in laws if law.name == "ways, classification"]
    outputs.check()


def test_a_component_that_serves_no_tasks_has_no_law_to_hold(monkeypatch):
    said = replace(registry.get("inner_algorithm", "maml"), tasks=())
    monkeypatch.setattr(conformance.registry, "get", lambda kind, name: said)
    monkeypatch.setattr(conformance, "create", lambda *given: SimpleNamespace(tasks=frozenset()))
    (law,) = conformance.laws_of("inner_algorithm", "maml")
    with pytest.raises(AssertionError, match="it serves no kind of tasks"):
        law.check()


def test_a_plugin_without_components_has_no_laws():
    with pytest.raises(PluginError, match="no plugin has the name 'nothing'"):
        conformance.laws_of_plugin("nothing")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--pyargs", "metaforge.testing.conformance", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_pytest_checks_a_plugin_law_by_law(tmp_path):
    done = run_pytest(tmp_path, "--metaforge-plugin", "weightings", "-v")
    assert done.returncode == 0, done.stdout
    assert "test_law[task_weighting tasml: permutation, no groups] PASSED" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say which plugin is checked"),
        (["--metaforge-plugin", "nothing"], "no plugin has the name 'nothing'"),
    ],
)
def test_pytest_without_a_law_to_check_fails(tmp_path, arguments, words):
    done = run_pytest(tmp_path, *arguments)
    assert done.returncode not in (0, 5)
    assert words in done.stdout + done.stderr


# -- what a Component says, and signs --------------------------------------------------------


class Normalized(TaskWeighting):
    """Declares non-negative weights, which kernel values that are none do not give."""

    sums_to_one = True

    def fit(self, gram, groups, *, kind="classification"):
        return None

    def weights(self, state, cross, self_):
        return cross / cross.sum(0)


def test_declarations_are_tried_on_negative_kernel_values(monkeypatch):
    made = replace(registry.get("task_weighting", "uniform"), target=f"{__name__}:Normalized")
    made = replace(made, target_specific=None, learned=None)
    monkeypatch.setattr(conformance.registry, "get", lambda kind, name: made)
    monkeypatch.setattr(conformance, "create", lambda kind, choice, context: Normalized())
    broken = []
    for law in conformance.laws_of("task_weighting", "uniform"):
        try:
            law.check()
        except AssertionError as error:
            broken.append(f"{law}: {error}")
    (told,) = broken
    assert told.startswith("declarations, negative kernel values: may_be_negative: false, but")


def test_declared_groups_are_those_of_the_source(monkeypatch):
    source = registry.create("dataset", "sinusoids")
    said = replace(registry.get("dataset", "sinusoids"), groups=False)
    monkeypatch.setattr(conformance.registry, "get", lambda kind, name: said)
    monkeypatch.setattr(conformance, "create", lambda kind, choice, context: source)
    (law,) = [law for law in conformance.laws_of("dataset", "sinusoids") if "declared" in law.name]
    with pytest.raises(AssertionError, match="the Component says groups = False, and the source"):
        law.check()


# -- models and backbones: what breaks their laws --------------------------------------------


class Sound(Model):
    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        module = nn.Linear(shape.input_shape[0], shape.outputs)
        for value in module.parameters():
            nn.init.normal_(value, generator=generator)
        return module


class OneOutput(Sound):
    def build(self, shape, generator):
        return super().build(TaskShape("classification", shape.input_shape, 1, 1, 1), generator)


class OwnGenerator(Sound):
    def build(self, shape, generator):
        return nn.Linear(shape.input_shape[0], shape.outputs)


class AlwaysTheSame(Sound):
    def build(self, shape, generator):
        return super().build(shape, torch.Generator().manual_seed(7))


class Centred(nn.Linear):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class SeesTheBatch(Sound):
    def build(self, shape, generator):
        module = Centred(shape.input_shape[0], shape.outputs)
        module.load_state_dict(super().build(shape, generator).state_dict())
        return module


class SaysTransductive(Sound):
    transductive = True


class Cut(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach() + self.bias


class CutsTheGraph(Sound):
    def build(self, shape, generator):
        module = Cut(shape.input_shape[0], shape.outputs)
        module.load_state_dict(super().build(shape, generator).state_dict())
        return module


@pytest.mark.parametrize(
    ("broken", "law", "words"),
    [
        (OneOutput, "outputs", r"\[n, outputs\] = \[8, 3\], not \[8, 1\]"),
        (OwnGenerator, "initialisation", "from the generator given alone"),
        (AlwaysTheSame, "initialisation", "another generator, other parameters"),
        (SeesTheBatch, "transductive", "not declared"),
        (SaysTransductive, "transductive", "declared, but"),
        (CutsTheGraph, "gradients", "none reaches weight"),
    ],
)
def test_model_laws_reject_what_breaks_them(broken, law, words):
    for each in models.model_laws(Sound, VECTORS):
        each.check()
    (check,) = [each.check for each in models.model_laws(broken, VECTORS) if each.name == law]
    with pytest.raises(AssertionError, match=words):
        check()


class Pools(Backbone):
    width, fingerprint = 2, "two means"

    def features(self, images):
        return images.flatten(1).unflatten(1, (2, -1)).mean(-1)


class OneNumber(Pools):
    width = 1


class KeepsAGraph(Pools):
    def features(self, images):
        return super().features(images) * nn.Parameter(torch.ones(1))


class Standardizes(Pools):
    def features(self, images):
        return super().features(images - images.mean(0))


class Numbers(Pools):
    def features(self, images):
        return super().features(images) + torch.arange(len(images))[:, None]


class NoName(Pools):
    fingerprint = ""


class OfALambda(Pools):
    def __init__(self):
        super().__init__()
        self.map = lambda x: x


@pytest.mark.parametrize(
    ("broken", "law", "words"),
    [
        (OneNumber, "features", r"\[n, width\] = \[4, 1\]"),
        (KeepsAGraph, "features", "no graph"),
        (Standardizes, "one by one", "its own"),
        (Numbers, "one by one", "its own"),
        (NoName, "fingerprint", "not empty"),
        (OfALambda, "picklable", "picklable"),
    ],
)
def test_backbone_laws_reject_what_breaks_them(broken, law, words):
    shape = (1, 4, 4)
    for each in models.backbone_laws(Pools, shape):
        each.check()
    (check,) = [each.check for each in models.backbone_laws(broken, shape) if each.name == law]
    with pytest.raises(AssertionError, match=words):
        check()


class Net(NetworkBackbone):
    """A normalised affine map of 4 x 4 pixels."""

    width, images = 3, ImageForm(1, 4, 4)

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 3))
        random = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for value in self.network.parameters():
                value.uniform_(-1, 1, generator=random)


class NamesOneTensor(Net):
    @property
    def fingerprint(self):
        return str(self.network[2].weight.sum().item())


class ForgetsStatistics(Net):
    @property
    def fingerprint(self):
        return str([value.tolist() for value in self.network.parameters()])


class StaysInItsMode(Net):
    @torch.no_grad()
    def features(self, images):
        return self.network(images)


class TrainsAnother(Net):
    def prepare(self, images):
        return 1 - images

    @torch.no_grad()
    def features(self, images):
        return self.network.eval()(images)


@pytest.mark.parametrize(
    ("broken", "law", "words"),
    [
        (NamesOneTensor, "weights", "other numbers in 0.weight, the same"),
        (ForgetsStatistics, "weights", "other numbers in 0.running_mean"),
        (StaysInItsMode, "evaluation", "mode does not matter"),
        (TrainsAnother, "network", "it gives the features"),
    ],
)
def test_laws_of_networks_reject_what_breaks_them(broken, law, words):
    for each in models.backbone_laws(Net, (1, 4, 4)):
        each.check()
    (check,) = [one.check for one in models.backbone_laws(broken, (1, 4, 4)) if one.name == law]
    with pytest.raises(AssertionError, match=words):
        check()


def test_a_backbone_is_tried_on_the_images_that_it_takes():
    made = registry.create("backbone", "glyph_conv")
    assert conformance._taken(made) == (1, 28, 28)
    assert conformance._taken(Pools()) == (1, 28, 28)
    with pytest.raises(PluginError, match="none of the images tried"):
        conformance._taken(Picky())


class Picky(Pools):
    def features(self, images):
        raise ValueError("no")


# -- what is told of a component ---------------------------------------------------------------

BUILT_IN = [item for item, plugin in host().components() if plugin.distribution == "metaforge"]


@pytest.mark.parametrize("component", BUILT_IN, ids=lambda item: f"{item.kind} {item.name}")
def test_show_tells_options_formula_and_source_of_every_component(component, monkeypatch):
    if component.absence:
        pytest.skip(component.absence)
    monkeypatch.setenv("COLUMNS", "9999")  # a table's last column is cut to a terminal's width
    told = CliRunner().invoke(show.command, [component.kind, component.name])
    assert told.exit_code == 0
    first = (component.load().__doc__ or "").strip().splitlines()[0]
    assert first in told.output
    for name, info in component.options_model.model_fields.items():
        assert info.description, f"option {name} says what it is"
        assert info.description in told.output
    if component.kind in ("task_kernel", "inner_algorithm"):
        assert component.cites
    for entry in component.cites:
        assert entry.splitlines()[0] in told.output
