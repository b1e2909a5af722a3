"""The laws of any component, by its name; and, for pytest, of every component of a plugin:

``pytest --pyargs metaforge.testing.conformance --metaforge-plugin NAME``

``metaforge plugins check NAME`` tells the same. Components are made as a run makes them, on toy
tasks that they say they serve. An inner algorithm with an inner loop needs an option ``steps``
that may be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from metaforge import registry
from metaforge.components import Component, Context
from metaforge.creation import create
from metaforge.errors import MetaforgeError, PluginError, RecipeError
from metaforge.options import Choice, Options, nested_kinds
from metaforge.plugins import host
from metaforge.recipe.resolve import checked_options
from metaforge.suggest import did_you_mean
from metaforge.tasks import TaskKind, TaskShape
from metaforge.testing.datasets import task_source_laws
from metaforge.testing.inner_algorithms import inner_algorithm_laws, toy_tasks
from metaforge.testing.kernels import kernel_laws
from metaforge.testing.law import Law
from metaforge.testing.models import backbone_laws, model_laws
from metaforge.testing.trackers import tracker_laws
from metaforge.testing.weightings import (
    check_declarations,
    check_shape,
    gaussian_case,
    signed_case,
    weighting_laws,
)

#: Tasks of a kind that components are tried on: vectors, else images.
SHAPES: dict[TaskKind, tuple[TaskShape, ...]] = {
    "classification": (
        TaskShape("classification", (9,), 3, shots=2, queries=3),
        TaskShape("classification", (1, 16, 16), 3, shots=2, queries=2),
        TaskShape("classification", (3, 32, 32), 3, shots=2, queries=2),
    ),
    "regression": (
        TaskShape("regression", (9,), 2, shots=5, queries=6),
        TaskShape("regression", (1, 16, 16), 2, shots=4, queries=4),
    ),
}
#: Images that a backbone is tried on that does not say which it wants, the first that it takes.
_IMAGES = ((1, 28, 28), (3, 32, 32), (3, 84, 84), (3, 224, 224), (16,))
_DATASET_TASKS = 200

Create = Callable[..., Any]


def laws_of_plugin(
    name: str, options: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, list[Law]]:
    """The laws of every component of a loaded plugin, by ``kind name``; ``options`` are for
    components by name.

    Raises ``PluginError`` for a plugin that is unknown, not loaded or without components, and
    for options of a component that it does not have.
    """
    plugin = host().named(name)
    if plugin.state != "loaded":
        raise PluginError(f"{plugin} is {plugin.state}: {plugin.reason}")
    given = dict(options or {})
    if not plugin.components:
        raise PluginError(f"{plugin} offers no component, so there is no law to check")
    names = [component.name for component in plugin.components]
    for other in set(given) - set(names):
        raise PluginError(
            f"{plugin} has no component {other!r}{did_you_mean(other, names)} "
            f"(it has {', '.join(names)})"
        )
    return {
        f"{component.kind} {component.name}": laws_of(
            component.kind, f"{plugin.distribution}:{component.name}", given.get(component.name)
        )
        for component in plugin.components
    }


def laws_of(kind: str, name: str, options: Mapping[str, Any] | None = None) -> list[Law]:
    """The laws of one component, with these options and the defaults of the others.

    Raises ``RecipeError`` for options that it does not have.
    """
    component = registry.get(kind, name)
    given = dict(options or {})

    def make(context: Context | None = None, **more: Any) -> Any:
        choice = Choice.model_validate({"use": name, **given, **more})
        return create(component.kind, choice, context or Context(dtype="float64"))

    try:
        checked_options(component, given, lambda key: Path())
        laws = _LAWS[component.kind](component, given, make)
        if not laws:
            laws = [Law("tasks", partial(_fail, "it serves no kind of tasks: no law to check"))]
        return [Law(law.name, partial(_undisturbed, law.check)) for law in laws]
    except MetaforgeError as error:
        if given and isinstance(error, RecipeError):
            raise  # a mistake of the caller's, and no broken law
        return [Law("creation", partial(_fail, str(error)))]


def _undisturbed(check: Callable[[], None]) -> None:
    """The check, and that it leaves PyTorch's settings as they were: a run relies on them."""
    before = _settings()
    try:
        check()
        after = _settings()
    finally:
        torch.set_num_threads(before["threads"])
        torch.set_default_dtype(before["default dtype"])
        torch.set_grad_enabled(before["gradients"])
    changed = [f"{k} from {before[k]} to {after[k]}" for k in before if after[k] != before[k]]
    assert not changed, f"settings of PyTorch are left alone: changed {', '.join(changed)}"


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
    }


def _fail(message: str) -> None:
    raise AssertionError(message)


def _kernel(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    kinds = [kind for kind in SHAPES if not _unfit(component, given, "unfit", kind)]
    return [
        Law(f"{law}, {kind}", law.check)
        for kind in kinds
        for law in kernel_laws(make, toy_tasks(_shape(component, given, kind), 8))
    ]


def _weighting(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    found = []
    weighting = make()
    for groups, words in ((0, "no groups"), (4, "4 groups")):
        laws = weighting_laws(weighting, gaussian_case(groups=groups))
        found += [Law(f"{law}, {words}", law.check) for law in laws]
    signed = signed_case()
    of_signs = {"shape": check_shape, "declarations": check_declarations}
    if not _unfit(component, given, "unfit", "regression"):
        tasks = replace(gaussian_case(groups=4), kind="regression")
        found.append(Law("shape, regression", partial(check_shape, weighting, tasks)))
    return found + [
        Law(f"{name}, negative kernel values", partial(check, weighting, signed))
        for name, check in of_signs.items()
    ]


def _inner_algorithm(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    found: list[Law] = []
    without = partial(make, steps=0) if "steps" in component.options_model.model_fields else None
    served = component.tasks or make().tasks
    for kind in (kind for kind in SHAPES if kind in served):
        shape = _shape(component, given, kind)
        laws = inner_algorithm_laws(make, shape, unadapted=without)
        found += [Law(f"{law}, {kind}", law.check) for law in laws]
    return found


def _dataset(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    def seeded(seed: int) -> Any:
        return make(Context(seed=seed))

    def declared() -> None:
        said, names = component.has_groups(_options(component, given)), seeded(0).group_names
        assert said is None or said == bool(names), (
            f"declared groups: the Component says groups = {said}, and the source has "
            f"{len(names)}: {', '.join(names[:5]) or 'none'}"
        )

    laws = task_source_laws(seeded, tasks=_DATASET_TASKS, processes=True)
    return [*laws, Law("declared groups", declared)]


def _model(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    return model_laws(make, _shape(component, given, "classification"))


def _backbone(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    return backbone_laws(lambda: make(Context()), _taken(make(Context())))


def _tracker(component: Component, given: Mapping[str, Any], make: Create) -> list[Law]:
    return tracker_laws(make)


_LAWS: dict[str, Callable[[Component, Mapping[str, Any], Create], list[Law]]] = {
    "task_kernel": _kernel,
    "task_weighting": _weighting,
    "inner_algorithm": _inner_algorithm,
    "dataset": _dataset,
    "model": _model,
    "backbone": _backbone,
    "tracker": _tracker,
}


def _unfit(component: Component, given: Mapping[str, Any], method: str, *arguments: Any) -> str:
    """What a component's options say against tasks or inputs."""
    return str(getattr(_options(component, given), method)(*arguments))


def _nested(
    component: Component, given: Mapping[str, Any]
) -> Iterator[tuple[Component, Mapping[str, Any]]]:
    """A component with its options, and those that it holds with theirs."""
    yield component, given
    held = _options(component, given)
    for key, kind in nested_kinds(component.options_model).items():
        if isinstance(choice := getattr(held, key), Choice):
            yield from _nested(registry.get(kind, choice.use), choice.options)


def _options(component: Component, given: Mapping[str, Any]) -> Options:
    return component.options_model.model_validate(dict(given))


def _shape(component: Component, given: Mapping[str, Any], kind: TaskKind) -> TaskShape:
    """The first shape of tasks that a component's options do not refuse."""
    for shape in SHAPES[kind]:
        inner = _nested(component, given)
        if not any(_unfit(*each, "unfit_inputs", shape.input_shape) for each in inner):
            return shape
    raise PluginError(f"{component.kind} {component.name!r}: its options refuse every toy input")


def _taken(backbone: Any) -> tuple[int, ...]:
    """The shape of images that a backbone wants, or else the first that it takes."""
    if backbone.images is not None:
        return tuple(backbone.images.shape)
    reasons = []
    for shape in _IMAGES:
        try:
            backbone.features(torch.zeros(1, *shape))
        except (RuntimeError, ValueError, MetaforgeError) as error:
            reasons.append(f"{list(shape)}: {error}")
        else:
            return shape
    raise PluginError("backbone: it takes none of the images tried: " + "; ".join(reasons))


# -- pytest --------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: Any) -> None:
    """A test for each law, of the plugins that ``--metaforge-plugin`` names."""
    from metaforge.testing.pytest_plugin import chosen

    laws = {f"{key}: {law}": law for key, found in chosen(metafunc.config) for law in found}
    metafunc.parametrize("law", laws.values(), ids=laws)


def test_law(law: Law) -> None:
    law.check()
