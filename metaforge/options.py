"""Models of components' options: their base, and fields that hold another component.

Only what reads options imports this module, and with it pydantic; a plugin's ``__init__``
names its models by strings (``metaforge.components.Component``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pydantic.config import JsonDict

    from metaforge.components import Kind


class Validated(NamedTuple):
    """What an option that says ``validate`` stands for; options as a recipe writes them.

    ``tries`` are the values to choose from, which ``select.grid`` gets, unless it has values of
    that option already; ``instead`` is what the option itself says then.
    """

    instead: Mapping[str, Any]
    tries: Mapping[str, Sequence[Any]]


class Options(BaseModel):
    """Base of every component's options: frozen, and no unknown keys.

    Describe each field (``Field(description=...)``): ``metaforge show`` prints it.
    """

    # Built at first use: commands that only list things need no validators.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        defer_build=True,
        allow_inf_nan=False,
    )

    def unfit(self, tasks: str) -> str:
        """Why a component with these options cannot serve tasks of a kind (``classification``,
        ``regression``), with what to do; or nothing. Asked before the run starts."""
        return ""

    def unfit_bank(self, size: int) -> str:
        """Why a component with these options cannot serve a bank of ``size`` tasks, with what to
        do; or nothing. Asked before the run starts."""
        return ""

    def unfit_inputs(self, shape: tuple[int, ...]) -> str:
        """Why an inner algorithm or a model with these options cannot serve samples of a shape
        (``[p]``, ``[channels, height, width]``), with what to do; or nothing. Asked before the
        run starts, where the data set's facts tell the shape."""
        return ""

    def validated(self) -> Validated | None:
        """What is to be chosen on validation targets, where an option says ``validate``."""
        return None


class Choice(BaseModel):
    """A component chosen by name, with its options beside ``use``."""

    model_config = ConfigDict(frozen=True, extra="allow")

    use: str

    @property
    def options(self) -> dict[str, Any]:
        """The chosen component's own options, as written."""
        return dict(self.__pydantic_extra__ or {})


def choice(
    kind: Kind, default: str | None = None, *, optional: bool = False, description: str = ""
) -> Any:
    """A field that holds a nested component of the given kind.

    ``model: Choice = choice("model", "linear")`` lets a recipe say
    ``model: {use: mlp, hidden: [64]}``; the nested options are validated by the chosen
    component's own model, and the ready component reaches the target as a keyword. Without a
    default one must be given, or, if it is ``optional``, may be None and is at first.
    """
    extra: JsonDict = {"component_kind": kind}
    if optional and default is None:
        return Field(None, description=description, json_schema_extra=extra)
    if default is None:
        return Field(description=description, json_schema_extra=extra)
    return Field(
        default_factory=lambda: Choice(use=default),
        description=description,
        json_schema_extra=extra,
    )


def named_choices(kind: Kind, *, description: str = "", hands_down: tuple[str, ...] = ()) -> Any:
    """A required field that holds nested components of the given kind by names of the user's.

    ``sources: dict[str, Choice] = named_choices("dataset")``. The options ``hands_down`` of
    the holder are those of the components too, where they have such; one that is given for a
    component alone, and differs, is refused.
    """
    extra: JsonDict = {"component_kind": kind, "hands_down": list(hands_down)}
    return Field(description=description, json_schema_extra=extra)


def nested_kinds(options: type[BaseModel]) -> dict[str, str]:
    """The fields of an options model that hold components: ``{field: kind}``."""
    found = {}
    for name, info in options.model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "component_kind" in extra:
            found[name] = str(extra["component_kind"])
    return found


def holds_names(options: type[BaseModel], key: str) -> bool:
    """Whether a field holds components by names (``named_choices``)."""
    return get_origin(options.model_fields[key].annotation) is dict


def handed_down(options: type[BaseModel], key: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """What a field's components take over from its holder, whose values are ``held``."""
    extra = options.model_fields[key].json_schema_extra
    names = extra.get("hands_down") if isinstance(extra, dict) else None
    fields = {name: options.model_fields[name] for name in map(str, names or ())}  # type: ignore[arg-type]
    return {
        name: held[name] if name in held else info.get_default(call_default_factory=True)
        for name, info in fields.items()
    }


def taken_over(
    options: type[BaseModel], given: Mapping[str, Any], handed: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """A component's options with those its holder hands down, and which of them contradict."""
    own = {key: value for key, value in handed.items() if key in options.model_fields}
    unlike = [key for key in own if key in given and _listed(given[key]) != _listed(own[key])]
    return {**given, **own}, unlike


def _listed(value: Any) -> Any:
    """A range, which is a tuple in a model, as the list that a recipe has for it."""
    return list(value) if isinstance(value, tuple) else value


def fault(model: Any) -> str:
    """Why ``model`` cannot be a component's options, or nothing."""
    if not (isinstance(model, type) and issubclass(model, Options)):
        return "its options must be a subclass of metaforge.options.Options"
    if model.model_config.get("extra") != "forbid":
        return "its options must forbid unknown keys (extra='forbid')"
    if "use" in model.model_fields:
        return "no option can be named 'use', which names the component"
    return ""
