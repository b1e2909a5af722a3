"""Names in messages: the nearest to a misspelled one, the first of many, odd ones in quotes."""

from __future__ import annotations

from collections.abc import Iterable

#: Names in a line; the others are counted.
_NAMED = 5


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, or None where none is close."""
    from difflib import get_close_matches

    spelled = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return spelled[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"``, or nothing: made to end an error's message."""
    found = nearest(name, known)
    return f"; did you mean {found!r}?" if found else ""


def shown(names: Iterable[str]) -> str:
    """``"3: a.png, b.png, c.png"``: how many, and the first; odd names in quotes."""
    names = list(names)
    first = ", ".join(map(told, names[:_NAMED]))
    return f"{len(names):,}: {first}" + (", ..." if len(names) > _NAMED else "")


def told(name: str) -> str:
    """A name as it can stand in a line."""
    return name if name.isprintable() and name == name.strip() else ascii(name)
