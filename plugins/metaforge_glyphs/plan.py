"""Which images there are and what tasks ask of them: plain Python, so that checks are fast.

An image is in one split, by its letter's script. Letters of the training scripts are drawn
in the training faces alone, so that neither meta-training nor the backbone's pre-training
sees a face that a validation or test task asks for.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from metaforge.components import Context
from metaforge.task_sizes import ClassCounts, TaskSizes, shortages
from metaforge_glyphs import GlyphsOptions, Kinds
from metaforge_glyphs.fonts import FACES, SCRIPTS
from metaforge_glyphs.letters import Letter, letters

SPLITS = ("train", "val", "test")
KINDS = ("letters", "typefaces")
#: Letters are dealt to so many buckets; a bucket is never on both sides of a task.
LETTER_BUCKETS = 8

_FAMILIES = tuple(dict.fromkeys(face.family for face in FACES))


class Strip(NamedTuple):
    """The images of one letter in one face, for one kind of task.

    ``letter`` and ``face`` are indices into the plan's letters and ``FACES``.
    """

    kind: str
    letter: int
    face: int
    images: int


class TaskClass(NamedTuple):
    """A class of a pool: its name, its class group, and the numbers of its strips."""

    name: str
    group: str
    strips: list[int]


@dataclass(frozen=True)
class Plan:
    """The letters, and all strips of images: letter tasks' first, then letter by letter.

    ``numbers`` holds the strips of one kind in one split: ``numbers[kind, split]``.
    """

    letters: tuple[Letter, ...]
    strips: tuple[Strip, ...]
    numbers: dict[tuple[str, str], list[int]]


def plan(options: GlyphsOptions) -> Plan:
    """For letter tasks ``per_letter`` images of every letter, spread over its faces; for
    typeface tasks ``per_face`` of every letter in each of the faces that its split asks for."""
    kept = letters()
    strips: list[Strip] = []
    numbers: dict[tuple[str, str], list[int]] = {}
    for kind in KINDS:
        for index, letter in enumerate(kept):
            split = SCRIPTS[letter.script]
            shown = _shown(kind, split, letter.faces, options.per_letter, options.per_face)
            first = len(strips)
            strips += [Strip(kind, index, face, images) for face, images in shown]
            numbers.setdefault((kind, split), []).extend(range(first, len(strips)))
    return Plan(kept, tuple(strips), numbers)


@cache
def _shown(
    kind: str, split: str, covered: tuple[int, ...], per_letter: int, per_face: int
) -> list[tuple[int, int]]:
    """The faces that show a letter, of those that can, and how many images each gives."""
    own = [face for face in covered if FACES[face].split == split]
    if kind == "typefaces":
        return [(face, per_face) for face in own]
    faces = own if split == "train" else covered
    least, more = divmod(per_letter, len(faces) or 1)
    counts = ((face, least + (position < more)) for position, face in enumerate(faces))
    return [(face, images) for face, images in counts if images]


def sizes(options: GlyphsOptions) -> TaskSizes:
    return TaskSizes(options.ways, options.shots, options.queries, options.too_few)


def used_kinds(options: GlyphsOptions) -> list[str]:
    """The kinds of task that have a share."""
    return [kind for kind in KINDS if getattr(options.kinds, kind) > 0]


def classes(kind: str, split: str, options: GlyphsOptions, images: Plan) -> list[TaskClass]:
    """The classes that tasks of one kind draw from in one split."""
    make = {"letters": _letter_classes, "typefaces": _typeface_classes}[kind]
    return make(images.numbers[kind, split], options, images)


def _letter_classes(
    numbers: Sequence[int], options: GlyphsOptions, images: Plan
) -> list[TaskClass]:
    """Classes are letters; support and query of a task are of different type families.

    So the letters of a task must be drawn in the same families: its class groups are a
    script (or all scripts, unless ``within``) and a set of families.
    """
    of_letter: dict[int, list[int]] = {}
    for number in numbers:
        of_letter.setdefault(images.strips[number].letter, []).append(number)
    found = []
    for index, own in of_letter.items():
        letter = images.letters[index]
        families = _families(tuple(images.strips[number].face for number in own))
        found.append(
            TaskClass(
                f"{letter.script} {letter.char} U+{ord(letter.char):04X}",
                f"{letter.script if options.within else 'all'} in {families}",
                own,
            )
        )
    return found


@cache
def _families(faces: tuple[int, ...]) -> str:
    return " + ".join(dict.fromkeys(FACES[face].family for face in sorted(faces)))


def _typeface_classes(
    numbers: Sequence[int], options: GlyphsOptions, images: Plan
) -> list[TaskClass]:
    """Classes are faces (each script's own, if ``within``); letters never straddle a task."""
    of_face: dict[str, dict[int, list[int]]] = {script: {} for script in (*SCRIPTS, "all")}
    for number in numbers:
        strip = images.strips[number]
        script = images.letters[strip.letter].script if options.within else "all"
        of_face[script].setdefault(strip.face, []).append(number)
    return [
        TaskClass(
            f"{FACES[face].name} ({script})" if options.within else FACES[face].name,
            script,
            faces[face],
        )
        for script, faces in of_face.items()
        if len(faces) >= options.ways  # a script with fewer faces than ways makes no task
        for face in sorted(faces)
    ]


def sample_groups(images: Plan) -> list[int]:
    """For each strip, what is never on both sides of a task. Of letter tasks a type family (or
    a face, where the letter is drawn in one family alone), of typeface tasks a bucket of
    letters; a letter's cases and accents share a bucket."""
    families = [_FAMILIES.index(face.family) for face in FACES]
    used: list[set[int]] = [set() for _ in images.letters]
    for strip in images.strips:
        if strip.kind == "letters":
            used[strip.letter].add(families[strip.face])
    bases = [unicodedata.normalize("NFKD", one.char)[0].casefold() for one in images.letters]
    bucket = {base: i % LETTER_BUCKETS for i, base in enumerate(dict.fromkeys(bases))}

    def group(strip: Strip) -> int:
        if strip.kind == "typefaces":
            return len(_FAMILIES) + len(FACES) + bucket[bases[strip.letter]]
        alone = len(used[strip.letter]) == 1
        return len(_FAMILIES) + strip.face if alone else families[strip.face]

    return [group(strip) for strip in images.strips]


def check(options: GlyphsOptions, context: Context) -> list[str]:
    """Why the tasks asked for cannot be drawn; nothing is rendered."""
    found = []
    faces = min(sum(face.split == split for face in FACES) for split in SPLITS)
    if options.kinds.typefaces and options.ways > faces:
        found.append(
            f"ways is {options.ways}, but a split has as few as {faces} typefaces; "
            f"lower ways to {faces}, or set kinds.typefaces to 0"
        )
        if not options.kinds.letters:
            return found
        options = options.model_copy(update={"kinds": Kinds(letters=1, typefaces=0)})
    return found + list(_shortages(options))


def _shortages(options: GlyphsOptions) -> Iterable[str]:
    images = plan(options)
    groups = sample_groups(images)
    kinds = used_kinds(options)
    for split in SPLITS:
        for kind in kinds:
            counts = _counts(classes(kind, split, options, images), images, groups)
            where = f"split {split!r}" + (f", pool {kind!r}" if len(kinds) > 1 else "")
            yield from (f"{where}: {line}" for line in shortages(counts, sizes(options)))


def _counts(found: Sequence[TaskClass], images: Plan, groups: Sequence[int]) -> ClassCounts:
    names = list(dict.fromkeys(one.group for one in found))
    in_groups = []
    for one in found:
        sizes_of: Counter[int] = Counter()
        for number in one.strips:
            sizes_of[groups[number]] += images.strips[number].images
        in_groups.append(tuple(sizes_of[group] for group in sorted(sizes_of)))
    return ClassCounts(
        rows=[sum(some) for some in in_groups],
        names=[one.name for one in found],
        in_groups=in_groups,
        class_groups=[names.index(one.group) for one in found],
    )
