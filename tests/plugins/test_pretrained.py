"""``timm`` and ``torchvision``, by stand-ins that have of the packages what is asked of them."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

import metaforge
from metaforge.components import Context
from metaforge.errors import DataError, PluginError, RecipeError
from metaforge.image_files import ImageForm
from metaforge.records import save_tensors
from metaforge.testing.conformance import laws_of

MEAN, SD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)


class Net(nn.Module):
    """A body of three features, and a classifier where there are classes."""

    pretrained_cfg: ClassVar = {"classifier": "head.fc"}

    def __init__(self, classes: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 3, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        head = nn.Linear(3, classes) if classes else nn.Identity()
        self.head = nn.ModuleDict({"fc": head})

    def forward(self, x):
        return self.head["fc"](self.body(x))


def module(name: str, **content) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    made.__dict__.update(content)
    return made


@pytest.fixture
def asked(monkeypatch) -> list:
    """The stand-ins in place; what they were asked to fetch."""
    fetched: list = []

    def create_model(name, pretrained, num_classes):
        fetched.append(pretrained)
        if name == "broken":
            raise OSError("no route")
        return Net(num_classes)

    data = module(
        "timm.data",
        resolve_model_data_config=lambda net: {"input_size": (3, 24, 32), "mean": MEAN, "std": SD},
    )
    timm = module(
        "timm",
        data=data,
        create_model=create_model,
        list_models=lambda: ["net", "broken"],
        is_model=lambda name: name in ("net", "broken"),
    )
    preset = SimpleNamespace(crop_size=[24], mean=MEAN, std=SD)
    default = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: preset))

    def get_model(name, weights):
        fetched.append(weights is not None)
        return Net(5) if name == "net" else Net(0)

    models = module(
        "torchvision.models",
        list_models=lambda module: ["net", "headless"],
        get_model_weights=lambda name: default,
        get_model=get_model,
    )
    vision = module("torchvision", models=models)
    for each in (timm, data, vision, models):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    return fetched


def backbone(name: str, seed: int = 0, **options):
    return metaforge.create("backbone", name, context=Context(seed=seed), **options)


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_inputs_have_the_form_and_the_normalisation_of_the_network(name, asked):
    made = backbone(name, model="net", weights="none")
    assert made.images == ImageForm(3, 24, 32 if name == "timm" else 24)
    assert made.width == 3
    x = torch.rand(2, *made.images.shape)
    mean, sd = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, SD))
    torch.testing.assert_close(made.features(x), made.network((x - mean) / sd).detach())
    assert asked == [False]
    assert backbone(name, model="net", weights="none", size=20).images == ImageForm(3, 20, 20)


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_every_law_holds(name, asked):
    laws = laws_of("backbone", name, {"model": "net", "weights": "none"})
    assert len(laws) == 7
    for law in laws:
        law.check()


@pytest.mark.parametrize("name", ["timm", "torchvision"])
@pytest.mark.parametrize("form", ["safetensors", "pth", "nested"])
def test_local_weights_are_read_without_their_classifier(name, form, asked, tmp_path):
    torch.manual_seed(3)
    given = Net(7 if name == "timm" else 5)
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pth")
    state = given.state_dict()
    if form == "safetensors":
        save_tensors(path, state)
    else:
        nested = {"state_dict": {f"module.{k}": v for k, v in state.items()}, "epoch": 3}
        torch.save(state if form == "pth" else nested, path)
    made = backbone(name, model="net", weights=path)
    x = torch.rand(2, *made.images.shape)
    torch.testing.assert_close(made.features(x), given.eval().body(made.prepare(x)).detach())
    assert asked == [False]


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_files_that_are_no_weights_of_the_network_are_refused(name, asked, tmp_path):
    path = tmp_path / "w.pth"
    torch.save({"other": torch.zeros(2)}, path)
    with pytest.raises(DataError, match=r"body.0.weight is missing, expected .*another network"):
        backbone(name, model="net", weights=path)
    torch.save(Net(3), path)  # a pickle of code
    with pytest.raises(DataError, match="no file of tensors alone"):
        backbone(name, model="net", weights=path)
    torch.save([1, 2], path)
    with pytest.raises(DataError, match="holds no state_dict"):
        backbone(name, model="net", weights=path)
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(DataError, match="no file of tensors alone"):
        backbone(name, model="net", weights=path)
    with pytest.raises(DataError, match="is missing"):
        backbone(name, model="net", weights=tmp_path / "none.pth")


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_weights_are_drawn_by_the_seed_and_fetched_only_when_asked(name, asked):
    state = torch.random.get_rng_state()
    one, again, other = (backbone(name, s, model="net", weights="none") for s in (0, 0, 1))
    assert one.fingerprint == again.fingerprint != other.fingerprint
    assert torch.equal(torch.random.get_rng_state(), state)
    assert asked == [False] * 3
    backbone(name, model="net", download=True)
    assert asked[3:] == [True]
    with pytest.raises(RecipeError, match="no weights: give weights, a file; or say download"):
        backbone(name, model="net")
    with pytest.raises(RecipeError, match="give one of them"):
        backbone(name, model="net", weights="none", download=True)


def test_networks_that_are_not_there_are_named(asked):
    for name, what in (("timm", "model 'nett'"), ("torchvision", "classifier 'nett'")):
        with pytest.raises(PluginError, match=f"has no {what}; did you mean 'net'"):
            backbone(name, model="nett", weights="none")
    with pytest.raises(PluginError, match="'broken' cannot be made: OSError: no route"):
        backbone("timm", model="broken", download=True)
    with pytest.raises(PluginError, match="does not end in an affine layer"):
        backbone("torchvision", model="headless", weights="none")


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_a_missing_package_is_told_with_its_command(name, monkeypatch):
    monkeypatch.setattr("metaforge.optional.find_spec", lambda name: None)
    with pytest.raises(PluginError, match=rf"pip install 'metaforge\[{name}\]'"):
        backbone(name, model="net", weights="none")
