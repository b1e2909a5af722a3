"""The laws of models and of backbones, as checks a plugin's own tests can call."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from metaforge import seeding
from metaforge.contracts import Backbone, Model
from metaforge.tasks import TaskShape
from metaforge.testing.law import Law

#: Of equalities in float64, relative to the largest entry.
TOLERANCE = 1e-10


def model_laws(make: Callable[[], Model], shape: TaskShape) -> list[Law]:
    """Every law of a model; ``shape`` is that of the tasks that its networks serve."""
    return [
        Law("outputs", lambda: check_outputs(make(), shape)),
        Law("initialisation", lambda: check_initialisation(make(), shape)),
        Law("transductive", lambda: check_transductive(make(), shape)),
        Law("gradients", lambda: check_gradients(make(), shape)),
    ]


def check_outputs(model: Model, shape: TaskShape) -> None:
    """``build`` gives a module that maps [n, *x] to finite [n, outputs] and leaves x alone."""
    module, x = _built(model, shape), _inputs(shape)
    before = x.clone()
    outputs = module(x)
    expected = (len(x), shape.outputs)
    assert tuple(outputs.shape) == expected, (
        f"outputs: [n, outputs] = {list(expected)}, not {list(outputs.shape)}"
    )
    assert torch.isfinite(outputs).all(), "outputs: finite"
    assert torch.equal(x, before), "outputs: inputs are left as they are"


def check_initialisation(model: Model, shape: TaskShape) -> None:
    """Parameters depend on the generator alone: the same for the same, others for another,
    whatever PyTorch's own generator has given out."""
    torch.manual_seed(1)
    first = _parameters(_built(model, shape))
    torch.manual_seed(2)
    again, other = _parameters(_built(model, shape)), _parameters(_built(model, shape, seed=1))
    assert torch.equal(first, again), "initialisation: from the generator given alone"
    assert not torch.equal(first, other), "initialisation: another generator, other parameters"


def check_transductive(model: Model, shape: TaskShape) -> None:
    """A sample's output depends on the others of its batch if, and only if, the model says so."""
    module, x = _built(model, shape), _inputs(shape)
    with torch.no_grad():
        together = module(x)
        halves = torch.cat([module(part) for part in x.chunk(2)])
    same = _near(halves, together)
    if model.transductive:
        assert not same, "transductive: declared, but samples do not see each other"
    else:
        assert same, "transductive: not declared, but samples see each other"


def check_gradients(model: Model, shape: TaskShape) -> None:
    """Every parameter that is not frozen gets a finite gradient from the outputs."""
    module = _built(model, shape)
    module(_inputs(shape)).square().sum().backward()
    for name, value in module.named_parameters():
        if value.requires_grad:
            assert value.grad is not None, f"gradients: none reaches {name}"
            assert torch.isfinite(value.grad).all(), f"gradients: that of {name} is not finite"


def backbone_laws(make: Callable[[], Backbone], shape: tuple[int, ...]) -> list[Law]:
    """Every law of a backbone; ``shape`` is that of an image. The laws of weights and of the
    network are of one that shows its ``network`` (``metaforge.pretraining``)."""
    laws = [
        Law("features", lambda: check_backbone_features(make(), shape)),
        Law("one by one", lambda: check_one_by_one(make(), shape)),
        Law("fingerprint", lambda: check_fingerprint(make)),
        Law("picklable", lambda: check_backbone_pickles(make(), shape)),
    ]
    if isinstance(getattr(make(), "network", None), nn.Module):
        laws += [
            Law("weights", lambda: check_weights_named(make())),
            Law("evaluation", lambda: check_evaluation(make(), shape)),
            Law("network", lambda: check_network(make(), shape)),
        ]
    return laws


def check_backbone_features(backbone: Backbone, shape: tuple[int, ...]) -> None:
    """[n, width], finite, without a graph; images are left as they are."""
    images = _images(shape)
    before = images.clone()
    found = backbone.features(images)
    expected = (len(images), backbone.width)
    assert tuple(found.shape) == expected, (
        f"features: [n, width] = {list(expected)}, not {list(found.shape)}"
    )
    assert torch.isfinite(found).all(), "features: finite"
    assert not found.requires_grad, "features: no graph is kept"
    assert torch.equal(images, before), "features: images are left as they are"


def check_one_by_one(backbone: Backbone, shape: tuple[int, ...]) -> None:
    """An image's features are its own, whatever images are asked with it."""
    images = _images(shape)
    together = backbone.features(images)
    alone = torch.cat([backbone.features(image[None]) for image in images])
    assert _near(alone, together, 1e-4), "one by one: an image's features are its own"
    turned = backbone.features(images.flip(0)).flip(0)
    assert _near(turned, together, 1e-4), "one by one: an image's features have no place"


@torch.no_grad()
def check_weights_named(backbone: Any) -> None:
    """Another number in any tensor of the network, running statistics too, another fingerprint."""
    before = backbone.fingerprint
    for name, value in backbone.network.state_dict().items():
        kept = value.clone()
        value.add_(1)  # shares memory with the network
        after = backbone.fingerprint
        value.copy_(kept)
        assert after != before, f"weights: other numbers in {name}, the same fingerprint"
    assert backbone.fingerprint == before, "weights: the same weights, the same fingerprint"


def check_evaluation(backbone: Any, shape: tuple[int, ...]) -> None:
    """Features are those of the evaluation mode, whatever mode the network was left in."""
    images = _images(shape)
    backbone.network.eval()
    before = backbone.features(images)
    backbone.network.train()
    assert torch.equal(backbone.features(images), before), "evaluation: the mode does not matter"


@torch.no_grad()
def check_network(backbone: Any, shape: tuple[int, ...]) -> None:
    """What is trained is what gives the features: network(prepare(x)) in evaluation mode."""
    images = _images(shape)
    found = backbone.network.eval()(backbone.prepare(images))
    assert _near(found, backbone.features(images), 1e-4), "network: it gives the features"


def check_fingerprint(make: Callable[[], Backbone]) -> None:
    """A text that names the weights: the same for the same options."""
    first, again = make().fingerprint, make().fingerprint
    assert isinstance(first, str), "fingerprint: a text"
    assert first, "fingerprint: not empty"
    assert first == again, "fingerprint: the same options, the same weights"


def check_backbone_pickles(backbone: Backbone, shape: tuple[int, ...]) -> None:
    """A copy in another process gives the same features."""
    images = _images(shape)
    try:
        copy = pickle.loads(pickle.dumps(backbone))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"picklable: {error}") from error
    assert torch.equal(copy.features(images), backbone.features(images)), "picklable: same values"


def _built(model: Model, shape: TaskShape, seed: int = 0) -> nn.Module:
    return model.build(shape, seeding.generator(seed, "init")).double()


def _parameters(module: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in module.parameters()])


def _inputs(shape: TaskShape) -> Tensor:
    random = seeding.generator(0, "inputs")
    return torch.randn(8, *shape.input_shape, generator=random, dtype=torch.float64)


def _images(shape: tuple[int, ...]) -> Tensor:
    return torch.rand(4, *shape, generator=seeding.generator(0, "images"))


def _near(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    scale = float(expected.abs().max()) or 1.0
    return float((found - expected).abs().max()) <= tolerance * scale
