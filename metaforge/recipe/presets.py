"""``preset: paper | released``: the settings of phases 2 and 3 of the paper, or of the program
that its authors released, where a recipe does not say otherwise.

A preset stands beneath the recipe: what the recipe or an override says wins, and the
resolved recipe shows every option. What belongs to one component (the width of the gaussian
kernel, tasml's lambda) is set only where that component is in use.

=======================  ======================  ========================================
                         paper                   released
=======================  ======================  ========================================
kernel gaussian          exp(-d^2 / 50^2)        exp(-50 d^2)
signature                support                 all inputs (transductive)
weights in the loss      alpha                   none: the top M are drawn uniformly
outer step               Adam                    Adam with TF1's eps; gradients clipped by
                                                 value 0.1, then each tensor by norm 0.1
J                        100 (gains beyond are   301: its loop runs J + 1 steps (151 for
                         small)                  miniImageNet 1-shot)
=======================  ======================  ========================================

Both: N = 30000, M = 500, lambda = 1e-8, batches of 12, learning rate 1e-4, beta1 = beta2 = 1,
an optimiser that starts anew for each target, L2-normalised features. Signatures are means, which
``kernel.embedding: auto`` takes beside a width in numbers; beside another width, say ``mean``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from metaforge.recipe.document import Document, Key, flat
from metaforge.recipe.overrides import Override, chosen_name, holder, kind_at, options_of
from metaforge.recipe.render import shown
from metaforge.recipe.schema import Recipe

if TYPE_CHECKING:
    from metaforge.recipe.loader import ResolvedRecipe

_BOTH: dict[str, Any] = {
    "bank.size": 30000,
    "kernel.normalize": True,
    "weighting.lambda": 1e-8,
    "condition.batch": 12,
    "condition.top_m": 500,
    "condition.beta1": 1.0,
    "condition.beta2": 1.0,
    "condition.sampling": "uniform",
    "condition.negative": "clip",
    "condition.optimizer.use": "adam",
    "condition.optimizer.lr": 1e-4,
    "condition.optimizer_state": "fresh",
}
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        **_BOTH,
        "kernel.sigma": 50.0,
        "kernel.signature": "support",
        "condition.weights_in_loss": "alpha",
        "condition.steps": 100,
        "condition.optimizer.eps_convention": "torch",
        "condition.optimizer.clip_value": None,
        "condition.optimizer.clip_norm": None,
    },
    "released": {
        **_BOTH,
        "kernel.gamma": 50.0,
        "kernel.signature": "all",
        "condition.weights_in_loss": "topm-uniform",
        "condition.steps": 301,
        "condition.optimizer.eps_convention": "tf1",
        "condition.optimizer.clip_value": 0.1,
        "condition.optimizer.clip_norm": 0.1,
    },
}
#: Options that mean something else, or nothing, beside another ``use``.
_ONLY_IN = {
    "kernel.sigma": "gaussian",
    "kernel.gamma": "gaussian",
    "weighting.lambda": "tasml",
    "condition.optimizer.eps_convention": "adam",
}
#: Other ways to say the same.
_INSTEAD = dict.fromkeys(("kernel.sigma", "kernel.gamma"), ("gamma", "sigma", "bandwidth"))


def expand(document: Document) -> None:
    """Write the options of the recipe's preset, if it has one, where the recipe has none."""
    name = document.data.get("preset")
    settings = PRESETS.get(name, {}) if isinstance(name, str) else {}
    for key, value in settings.items():
        path = tuple(key.split("."))
        if not _belongs(document.data, key, path):
            continue
        try:
            section = holder(document, Override(path, value, f"preset {name!r}"))
        except LookupError:
            continue  # not keys at all: validation says so
        given = any(section.get(other) is not None for other in _INSTEAD.get(key, ()))
        if path[-1] not in section and not given:
            section[path[-1]] = value
            document.origins[path] = f"preset {name!r}"


def remark(resolved: ResolvedRecipe) -> Iterator[str]:
    """What comes of the recipe's preset: what the recipe says otherwise, and whether nothing
    that the preset sets differs from the defaults. Read off the complete recipe, so that a
    run and its repetition from ``resolved.yaml`` are told the same."""
    name = resolved.recipe.preset
    if name is None:
        return
    held = flat(resolved.recipe.model_dump(mode="json", by_alias=True))
    wanted = {
        key: value
        for key, value in PRESETS[name].items()
        if key in held and _belongs(resolved.document.data, key, tuple(key.split(".")))
    }
    other = [key for key, value in wanted.items() if held[key] != value]
    effect = [key for key in wanted if key in resolved.changes and key not in other]
    told = f"preset {name} changes nothing here: its settings are the defaults, or said otherwise"
    if effect:
        told = f"preset {name}: {', '.join(f'{key} {shown(held[key])}' for key in effect)}"
    if other:
        own = ", ".join(_own(key, wanted[key], held) for key in other)
        told += f"; the recipe's own: {own}"
    yield told


def _own(key: str, wanted: Any, held: dict[str, Any]) -> str:
    """What the recipe says in a setting's place, which may be another option of its section."""
    section, _, name = key.rpartition(".")
    ways = [key, *(f"{section}.{way}" for way in _INSTEAD.get(key, ()))]
    said = next((way for way in ways if held.get(way) is not None), key)
    option = "" if said == key else f"{name} "
    return f"{said} {shown(held[said])} (preset: {option}{shown(wanted)})"


def _belongs(data: dict[str, Any], key: str, path: Key) -> bool:
    """Whether what is in use, if the key is an option of it, has it in the same sense."""
    kind = kind_at(data, path[:1])
    if key in _ONLY_IN:
        return _used(data, path) in (None, _ONLY_IN[key])
    if kind is None:
        return True
    options = options_of(kind, chosen_name(Recipe, str(path[0]), data.get(str(path[0]))))
    return options is not None and path[-1] in options.model_fields


def _used(data: Any, path: Key) -> Any:
    """The ``use`` beside a key; None where the recipe leaves it to the default."""
    for key in path[:-1]:
        data = data.get(key) if isinstance(data, dict) else None
    return data.get("use") if isinstance(data, dict) else data
