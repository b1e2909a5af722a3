"""The JSON schema of recipes, with the options of every installed component."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from metaforge.components import KINDS
from metaforge.options import nested_kinds
from metaforge.plugins import host
from metaforge.recipe.schema import Recipe

_Schema = dict[str, Any]


def recipe_schema() -> _Schema:
    """The schema, draft 2020-12.

    A key that holds a component admits its name, or a mapping with ``use`` and the options
    of the component of that name.
    """
    host().check_options()
    definitions: _Schema = {}
    schema = _model_schema(Recipe, "recipe", definitions)
    for kind in KINDS:
        definitions[kind] = _kind_schema(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "metaforge recipe",
        "$defs": dict(sorted(definitions.items())),
    }


def _model_schema(model: type[BaseModel], prefix: str, definitions: _Schema) -> _Schema:
    """A model's schema, its inner models moved to the common definitions under ``prefix``."""
    schema = model.model_json_schema(ref_template=f"#/$defs/{prefix}.{{model}}")
    inner = schema.pop("$defs", {})
    definitions.update({f"{prefix}.{key}": value for key, value in inner.items()})
    for field, kind in nested_kinds(model).items():
        key = model.model_fields[field].alias or field
        schema["properties"][key] = _choice_schema(schema["properties"][key], kind)
    return schema


def _choice_schema(written: _Schema, kind: str) -> _Schema:
    """A field that holds a component, a list of them, or one or null."""
    component = {"$ref": f"#/$defs/{kind}"}
    kept: _Schema = {key: written[key] for key in ("description", "default") if key in written}
    if "additionalProperties" in written:  # components by names
        return {**kept, "type": "object", "additionalProperties": component}
    if written.get("type") == "array":
        return {**kept, "type": "array", "items": component}
    if {"type": "null"} in written.get("anyOf", ()):
        return {**kept, "anyOf": [component, {"type": "null"}]}
    return {**kept, **component}


def _kind_schema(kind: str, definitions: _Schema) -> _Schema:
    """Any component of a kind: by name alone, or with options."""
    offers = [(item, plugin) for item, plugin in host().components() if item.kind == kind]
    names = [item.name for item, _ in offers]
    uses, with_options = [], []
    for item, plugin in offers:
        full = f"{plugin.distribution}:{item.name}"
        use = [full] if names.count(item.name) > 1 else [item.name, full]
        schema = _model_schema(item.options_model, f"{kind}.{full}", definitions)
        properties = {"use": {"enum": use, "description": item.summary}}
        properties |= schema.get("properties", {})
        with_options.append({**schema, "title": full, "properties": properties})
        uses += use
    return {"anyOf": [{"enum": uses}, *with_options]}
