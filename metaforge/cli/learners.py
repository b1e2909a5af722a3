"""Learners and models opened for the verbs that use them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from metaforge.components import Context

if TYPE_CHECKING:
    from metaforge.learner.learner import Learner


def context_of(quiet: bool) -> Context:
    """What tells on standard error how work goes on."""
    from metaforge.console import Console

    console = Console(quiet=quiet)
    return Context(report=console.line, progress=console.progress)


def opened(source: str, device: str | None, quiet: bool) -> tuple[Learner, Context]:
    """The learner of a run, a bundle or a shipped name; its notes are told."""
    from metaforge.cli.text import note_failed_plugins
    from metaforge.learner.load import load_learner

    note_failed_plugins()
    told = context_of(quiet)
    learner = load_learner(source, context=told, device=device)
    for line in learner.notes:
        told.report(f"note: {line}")
    own = learner.parts.context
    return learner, replace(own, report=told.report, progress=told.progress)
