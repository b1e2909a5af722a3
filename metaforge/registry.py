"""Look-up of components by kind and name, and their creation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metaforge.components import Component, Context, canonical_kind
from metaforge.discovery import ENGINE, source_hash
from metaforge.errors import (
    MetaforgeError,
    PluginError,
    Problem,
    RecipeError,
    UnknownName,
    one_line,
)
from metaforge.options import Choice, handed_down, nested_kinds, taken_over
from metaforge.plugins import PluginRecord, host
from metaforge.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from pydantic import BaseModel

_STATE = {"failed": "has failed: ", "blocked": "is "}


class UnknownComponent(UnknownName):
    """No component has this name; ``suspects`` are the missing plugins that may be why, and
    where there are any, it is a matter of plugins."""

    def __init__(self, summary: str, suspects: list[str]):
        super().__init__("\n  ".join([summary, *suspects]))
        self.summary = summary
        self.suspects = suspects
        if suspects:
            self.exit_code = PluginError.exit_code


def get(kind: str, name: str) -> Component:
    """The component of a kind by its name, or by ``distribution:name``.

    Raises ``UnknownComponent`` for an unknown name and ``PluginError`` for one that two
    plugins offer.
    """
    return _find(canonical_kind(kind), name)[0]


def owner(component: Component) -> PluginRecord:
    """The plugin that offers a component."""
    for offered, record in host().components():
        if offered is component:
            return record
    raise PluginError(f"{component.kind} {component.name!r} is offered by no loaded plugin")


def _find(kind: str, name: str) -> tuple[Component, PluginRecord]:
    distribution, _, short = name.rpartition(":")
    offers = [(c, plugin) for c, plugin in host().components() if c.kind == kind]
    found = [
        (component, plugin)
        for component, plugin in offers
        if component.name == short and distribution in ("", plugin.distribution)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        plugins = " and ".join(str(plugin) for _, plugin in found)
        picks = " or ".join(sorted({f"{p.distribution}:{short}" for _, p in found}))
        raise PluginError(f"{kind} {name!r} is offered by {plugins}: say {picks}, or block one")
    known = sorted(component.name for component, _ in offers)
    raise _unknown(kind, name, known)


def _unknown(kind: str, name: str, known: list[str]) -> UnknownComponent:
    summary = f"unknown {kind} {name!r}{did_you_mean(name, known)}"
    if not nearest(name, known):
        summary += f" (there are: {', '.join(known) or 'none'})"
    plugins = host().plugins
    suspects = [
        f"{plugin} may have it, but {_STATE[plugin.state]}{plugin.reason}"
        for plugin in plugins
        if plugin.state != "loaded"
    ]
    if not any(plugin.distribution == ENGINE for plugin in plugins):
        suspects.append("the built-in plugins are not installed: run 'pip install -e .'")
    return UnknownComponent(summary, suspects)


def create(kind: str, name: str, /, *, context: Context | None = None, **options: Any) -> Any:
    """A ready component.

    An option that holds a component may be given as its name, as a mapping with
    ``use``, as a ``Choice``, or as a ready object, which then goes to the component as
    it is. Raises ``PluginError`` for an unknown name or a component that fails, and
    ``RecipeError`` for bad options.
    """
    from metaforge.recipe.resolve import checked_options

    for word, value in (("kind", kind), ("name", name)):
        if not isinstance(value, str):
            raise PluginError(
                f"create: {word} is {value!r}, expected a text, as in "
                'create("task_kernel", "gaussian")'
            )
    if not isinstance(context, Context | None):
        raise PluginError(f"create: context is {context!r}, expected a Context or None")
    component, plugin = _find(canonical_kind(kind), name)
    context = context or Context()
    kinds = nested_kinds(component.options_model)
    ready = {key: options[key] for key in kinds if _is_ready(options.get(key))}
    named = {key: _stand_in(value) for key, value in ready.items()}
    checked = checked_options(component, options | named, lambda key: context.base_dir)
    nested = {
        key: ready[key] if key in ready else _create_nested(nested_kind, checked, key, context)
        for key, nested_kind in kinds.items()
    }
    return _call_target(component, plugin, checked, context, nested)


def create_choice(kind: str, choice: Choice, context: Context | None = None) -> Any:
    """The component that a recipe's section chose, ready."""
    return create(kind, choice.use, context=context, **choice.options)


def _is_ready(value: Any) -> bool:
    """Whether a value given for a nested component is the component itself."""
    if isinstance(value, list | tuple):
        return any(map(_is_ready, value))
    if isinstance(value, Mapping) and "use" not in value:  # components by names
        return any(map(_is_ready, value.values()))
    return not isinstance(value, str | Mapping | Choice | None)


def _stand_in(ready: Any) -> Any:
    """What validates in place of a ready component, or of ready ones by names."""
    if isinstance(ready, Mapping):
        return {name: _stand_in(value) for name, value in ready.items()}
    return Choice(use=f"<{type(ready).__qualname__}>")


def _create_nested(kind: str, options: BaseModel, key: str, context: Context) -> Any:
    value = getattr(options, key)
    if value is None:
        return None
    if isinstance(value, Choice):
        return create_choice(kind, value, context)
    if isinstance(value, Mapping):
        handed = handed_down(type(options), key, dict(options))
        return {
            name: create_choice(kind, _taking_over(kind, item, handed, f"{key}.{name}"), context)
            for name, item in value.items()
        }
    return tuple(create_choice(kind, item, context) for item in value)


def _taking_over(kind: str, choice: Choice, handed: Mapping[str, Any], label: str) -> Choice:
    """The choice with what its holder hands down; ``RecipeError`` where it says otherwise."""
    model = get(kind, choice.use).options_model
    options, contradicting = taken_over(model, choice.options, handed)
    if contradicting:
        raise RecipeError(
            [
                Problem(f"{label}.{k}", f"is {handed[k]} for all: leave it out")
                for k in contradicting
            ]
        )
    return Choice.model_validate({"use": choice.use, **options})


def _call_target(
    component: Component,
    plugin: PluginRecord,
    options: BaseModel,
    context: Context,
    nested: Mapping[str, Any],
) -> Any:
    """Import and call the target; what it raises on purpose passes, the rest is named."""
    what = f"{component.kind} {component.name!r} of {plugin}"
    try:
        target = component.load()
    except MetaforgeError:
        raise
    except Exception as error:
        raise PluginError(
            f"{what}: {component.target} cannot be imported: {one_line(error)}"
        ) from error
    try:
        return target(options, context, **nested)
    except MetaforgeError:
        raise
    except Exception as error:
        raise PluginError(f"{what} could not be created: {one_line(error)}") from error


def component_identity(component: Component) -> dict[str, str]:
    """What a cache key must hold of a component's code."""
    plugin = owner(component)
    package = component.target.partition(":")[0].partition(".")[0]
    packages = sorted({package, plugin.package})
    try:
        source = "-".join(map(source_hash, packages))
    except PluginError as error:
        raise PluginError(
            f"{component.kind} {component.name!r} of {plugin}: its code should be at "
            f"{component.target!r}, but {error}: mend the target of its Component"
        ) from error
    return {
        "kind": component.kind,
        "name": component.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "source": source,
    }
