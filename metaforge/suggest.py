"""Nearest names for a misspelled one."""

from __future__ import annotations

from collections.abc import Iterable


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
