"""What ``artifacts/picture.json`` holds, which the page of a run shows beside its figures."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from metaforge.run_files import Shape


class Sample(Shape):
    """A task to look at: its group (-1 for none), some of its classes and how many ``more`` there
    are, a strip of pictures (PNG, base64) or the points of a curve."""

    group: int
    classes: list[str]
    more: int
    picture: str | None
    points: list[tuple[float, float]] | None


class RecalledTask(Shape):
    """A bank task that a target recalls."""

    id: int
    weight: float
    sample: Sample


class ChosenTarget(Shape):
    """A target that is shown, and which it is of the ``best``, the ``median``, the ``worst``; of a
    weighting that ranks, its first weights and how many are ``kept``."""

    why: list[str]
    task_id: int
    sample: Sample
    kept: int
    weights: list[float]
    recalled: list[RecalledTask]


class Matrix(Shape):
    """A sample of K, row by row in 0..255 between ``low`` and ``high``."""

    groups: list[int]
    low: float
    high: float
    levels: list[int]

    @model_validator(mode="after")
    def _a_level_for_each_pair(self) -> Self:
        if len(self.levels) != len(self.groups) ** 2:
            raise ValueError(f"{len(self.levels)} levels for {len(self.groups)} tasks")
        return self


class Places(Shape):
    """Tasks on a map."""

    ids: list[int]
    groups: list[int]
    x: list[float]
    y: list[float]

    @model_validator(mode="after")
    def _a_place_for_each_task(self) -> Self:
        if {len(self.groups), len(self.x), len(self.y)} != {len(self.ids)}:
            raise ValueError(f"not one group, x and y for each of {len(self.ids)} tasks")
        return self


class SignatureMap(Shape):
    """Two components of signatures of ``width`` numbers, and their shares of the variance of the
    bank's first ``fitted`` tasks."""

    shares: list[float]
    fitted: int
    width: int
    bank: Places
    targets: Places


class Picture(Shape):
    """``artifacts/picture.json``."""

    groups: list[str]
    chosen: list[ChosenTarget]
    kernel: Matrix | None
    map: SignatureMap | None

    @model_validator(mode="after")
    def _groups_that_have_names(self) -> Self:
        shown = [one.sample.group for one in self.chosen]
        shown += [task.sample.group for one in self.chosen for task in one.recalled]
        shown += self.kernel.groups if self.kernel else []
        shown += [*self.map.bank.groups, *self.map.targets.groups] if self.map else []
        if unnamed := {group for group in shown if not -1 <= group < len(self.groups)}:
            raise ValueError(f"groups {sorted(unnamed)} of {len(self.groups)} names")
        return self

    @model_validator(mode="after")
    def _recalled_tasks_on_the_map(self) -> Self:
        bank = set(self.map.bank.ids if self.map else ())
        recalled = {task.id for one in self.chosen for task in one.recalled}
        targets = set(self.map.targets.ids if self.map else ())
        chosen = {one.task_id for one in self.chosen if one.recalled}
        if lost := (recalled - bank) | (chosen - targets):
            raise ValueError(f"tasks {sorted(lost)} have no place on the map")
        return self
