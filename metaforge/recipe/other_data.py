"""A recipe on other data than it was written for: what cannot be there is left out."""

from __future__ import annotations

from collections.abc import Iterable

from metaforge.recipe.document import Document
from metaforge.recipe.resolve import Chosen

_CONTROLS = ("evaluate", "controls")


def without_oracle(document: Document, chosen: Iterable[Chosen]) -> list[str]:
    """Take the control ``oracle`` out where an override chose data whose tasks have no groups,
    and the recipe's own controls are in force; a note that says so, if it was there."""
    controls = document.data.get("evaluate", {}).get("controls")
    if not (controls and "oracle" in controls and document.overridden(("data",))):
        return []
    data = next(choice for choice in chosen if choice.path == ("data",))
    grouped = data.component.has_groups(data.options)
    if grouped is not False or document.overridden(_CONTROLS):
        return []
    document.data["evaluate"]["controls"] = [name for name in controls if name != "oracle"]
    return [
        f"control oracle is left out: tasks of {data.component.name!r} have no groups here, as it "
        "needs them (of arrays: group and within)"
    ]
