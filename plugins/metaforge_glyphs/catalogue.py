"""The images of a plan, one row each, and the pools that tasks are drawn from. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metaforge.pools import Pool
from metaforge_glyphs.fonts import SCRIPTS
from metaforge_glyphs.letters import Letter
from metaforge_glyphs.options import GlyphsOptions
from metaforge_glyphs.plan import KINDS, SPLITS, Plan, classes, plan, sample_groups, used_kinds


@dataclass(frozen=True, eq=False)
class Catalogue:
    """One row an image: the kind of task it is for [n] (an index into ``KINDS``), its letter
    [n], its face [n] (an index into ``FACES``), and its number k [n] among those.

    ``starts`` [strips + 1]: where each strip of the plan begins.
    """

    plan: Plan
    starts: np.ndarray
    kind: np.ndarray
    letter: np.ndarray
    face: np.ndarray
    k: np.ndarray

    def __len__(self) -> int:
        return len(self.letter)

    @property
    def letters(self) -> tuple[Letter, ...]:
        return self.plan.letters

    @cached_property
    def codes(self) -> np.ndarray:
        """[n]: each image's code point."""
        return np.array([ord(letter.char) for letter in self.letters])[self.letter]

    @cached_property
    def script(self) -> np.ndarray:
        """[n]: each image's script, an index into ``SCRIPTS``."""
        numbers = [list(SCRIPTS).index(letter.script) for letter in self.letters]
        return np.array(numbers)[self.letter]

    def rows(self, kind: str, split: str) -> np.ndarray:
        """The images of one kind in one split, ascending."""
        splits = np.array([one == split for one in SCRIPTS.values()])
        return np.flatnonzero(splits[self.script] & (self.kind == KINDS.index(kind)))

    def of_strips(self, strips: Sequence[int]) -> np.ndarray:
        """The images of some strips, in their order."""
        return np.concatenate([np.arange(*self.starts[i : i + 2]) for i in strips])

    @cached_property
    def sample_groups(self) -> np.ndarray:
        """[n]: what is never on both sides of a task."""
        return np.repeat(sample_groups(self.plan), np.diff(self.starts))


def catalogue(options: GlyphsOptions) -> Catalogue:
    """Every image that the options ask for."""
    planned = plan(options)
    table = np.array(
        [(KINDS.index(kind), letter, face, n) for kind, letter, face, n in planned.strips()]
    )
    counts = table[:, 3]
    starts = np.concatenate([[0], np.cumsum(counts)])
    k = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    kind, letter, face = np.repeat(table[:, :3], counts, axis=0).T
    return Catalogue(planned, starts, kind, letter, face, k)


def pools(options: GlyphsOptions, images: Catalogue) -> dict[str, list[Pool]]:
    """For each split, a pool for each kind of task that has a share."""
    kinds = used_kinds(options)
    return {split: [_pool(kind, split, options, images) for kind in kinds] for split in SPLITS}


def _pool(kind: str, split: str, options: GlyphsOptions, images: Catalogue) -> Pool:
    found = classes(kind, split, options, images.plan)
    names = tuple(dict.fromkeys(one.group for one in found))
    return Pool(
        name=kind,
        members=tuple(images.of_strips(one.strips) for one in found),
        class_names=tuple(one.name for one in found),
        class_groups=np.array([names.index(one.group) for one in found]),
        class_group_names=names,
        sample_groups=images.sample_groups,
        within=True,
        weight=getattr(options.kinds, kind),
    )
