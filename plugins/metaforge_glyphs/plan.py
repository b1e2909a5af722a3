"""Which images there are and what tasks ask of them: plain Python, so that checks are fast.

An image is in one split, by its letter's script. Letters of the training scripts are drawn
in the training faces alone, so that neither meta-training nor the backbone's pre-training
sees a face that a validation or test task asks for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.task_sizes import ClassCounts, shortages
from metaforge_glyphs.fonts import FACES, SCRIPTS
from metaforge_glyphs.letters import Letter, letters
from metaforge_glyphs.options import SIZE, GlyphConvOptions, GlyphsOptions, Kinds

SPLITS = ("train", "val", "test")
KINDS = ("letters", "typefaces")
#: Letters are dealt to so many buckets; a bucket is never on both sides of a task.
LETTER_BUCKETS = 8

_FAMILIES = tuple(dict.fromkeys(face.family for face in FACES))


#: The images of one letter in one face, for one kind of task: the face, an index into
#: ``FACES``, and how many there are.
Strip = tuple[int, int]


class Sheet(NamedTuple):
    """The strips of one letter for one kind of task.

    ``letter`` is an index into the plan's letters. Strips are numbered from sheet to sheet:
    these are ``first``, ``first + 1``, ...
    """

    letter: int
    first: int
    strips: tuple[Strip, ...]


class TaskClass(NamedTuple):
    """A class of a pool: its name, its class group, and the numbers of its strips."""

    name: str
    group: str
    strips: Sequence[int]


class Plan(NamedTuple):
    """The letters, and for each (kind, split) the sheets of its letters, by ascending number."""

    letters: tuple[Letter, ...]
    sheets: dict[tuple[str, str], list[Sheet]]

    def strips(self) -> Iterator[tuple[str, int, int, int]]:
        """Kind, letter, face and number of images of every strip, in their order."""
        for (kind, _), sheets in self.sheets.items():
            for letter, _, strips in sheets:
                for face, images in strips:
                    yield kind, letter, face, images


def plan(options: GlyphsOptions) -> Plan:
    """For letter tasks ``per_letter`` images of every letter, spread over its faces; for
    typeface tasks ``per_face`` of every letter in each of the faces that its split asks for."""
    kept = letters()
    of_split: dict[str, list[int]] = {split: [] for split in SPLITS}
    for index, letter in enumerate(kept):
        of_split[SCRIPTS[letter.script]].append(index)
    sheets: dict[tuple[str, str], list[Sheet]] = {}
    first = 0
    for kind in KINDS:
        for split, indices in of_split.items():
            own = sheets[kind, split] = []
            for index in indices:
                covered = kept[index].faces
                strips = _strips(kind, split, covered, options.per_letter, options.per_face)
                if strips:
                    own.append(Sheet(index, first, strips))
                    first += len(strips)
    return Plan(kept, sheets)


@cache
def _strips(
    kind: str, split: str, covered: tuple[int, ...], per_letter: int, per_face: int
) -> tuple[Strip, ...]:
    """The faces that show a letter, of those that can, and how many images each gives."""
    own = [face for face in covered if FACES[face].split == split]
    if kind == "typefaces":
        return tuple((face, per_face) for face in own)
    faces = own if split == "train" else covered
    least, more = divmod(per_letter, len(faces) or 1)
    counts = ((face, least + (position < more)) for position, face in enumerate(faces))
    return tuple((face, images) for face, images in counts if images)


def used_kinds(options: GlyphsOptions) -> list[str]:
    """The kinds of task that have a share."""
    return [kind for kind in KINDS if getattr(options.kinds, kind) > 0]


def classes(kind: str, split: str, options: GlyphsOptions, images: Plan) -> list[TaskClass]:
    """The classes that tasks of one kind draw from in one split."""
    make = {"letters": _letter_classes, "typefaces": _typeface_classes}[kind]
    return make(images.sheets[kind, split], options, images.letters)


def _letter_classes(
    sheets: Iterable[Sheet], options: GlyphsOptions, kept: Sequence[Letter]
) -> list[TaskClass]:
    """Classes are letters; support and query of a task are of different type families.

    So the letters of a task must be drawn in the same families: its class groups are a
    script (or all scripts, unless ``within``) and a set of families.
    """
    found = []
    for index, first, strips in sheets:
        script = kept[index].script
        found.append(
            TaskClass(
                kept[index].name,
                f"{script if options.within else 'all'} in {' + '.join(_families(strips))}",
                range(first, first + len(strips)),
            )
        )
    return found


@cache
def _families(strips: tuple[Strip, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(FACES[face].family for face, _ in strips))


def _typeface_classes(
    sheets: Iterable[Sheet], options: GlyphsOptions, kept: Sequence[Letter]
) -> list[TaskClass]:
    """Classes are faces (each script's own, if ``within``); letters never straddle a task."""
    of_face: dict[str, dict[int, list[int]]] = {script: {} for script in (*SCRIPTS, "all")}
    for index, first, strips in sheets:
        own = of_face[kept[index].script if options.within else "all"]
        for number, (face, _) in enumerate(strips, first):
            own.setdefault(face, []).append(number)
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
    bases = [unicodedata.normalize("NFKD", one.char)[0].casefold() for one in images.letters]
    bucket = {base: i % LETTER_BUCKETS for i, base in enumerate(dict.fromkeys(bases))}
    groups: list[int] = []
    for (kind, _), sheets in images.sheets.items():
        for letter, _, strips in sheets:
            if kind == "letters":
                groups += _family_groups(strips)
            else:
                groups += [len(_FAMILIES) + len(FACES) + bucket[bases[letter]]] * len(strips)
    return groups


@cache
def _family_groups(strips: tuple[Strip, ...]) -> tuple[int, ...]:
    if len(_families(strips)) == 1:
        return tuple(len(_FAMILIES) + face for face, _ in strips)
    return tuple(_FAMILIES.index(FACES[face].family) for face, _ in strips)


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


def facts(options: GlyphsOptions, context: Context) -> DataFacts:
    """Class names, and the width where it is known: of pixels, or of the own backbone; and the
    shape of an input."""
    width: int | None = SIZE * SIZE
    shape: tuple[int, ...] | None = (1, SIZE, SIZE)
    if options.backbone is not None:
        own = options.backbone.use == "glyph_conv"
        width = GlyphConvOptions.model_validate(options.backbone.options).width if own else None
        if options.input == "features":
            shape = None if width is None else (width,)
    planned, kinds = plan(options), used_kinds(options)
    names = {
        split: [one.name for kind in kinds for one in classes(kind, split, options, planned)]
        for split in SPLITS
    }
    held = {split: frozenset(n) for split, n in names.items()}
    return DataFacts(width=width, classes=held, shape=shape)


def _shortages(options: GlyphsOptions) -> Iterable[str]:
    planned = plan(options)
    groups = sample_groups(planned)
    images = [n for some in planned.sheets.values() for sheet in some for _, n in sheet.strips]
    kinds = used_kinds(options)
    for split in SPLITS:
        for kind in kinds:
            counts = _counts(classes(kind, split, options, planned), images, groups)
            where = f"split {split!r}" + (f", pool {kind!r}" if len(kinds) > 1 else "")
            yield from (f"{where}: {line}" for line in shortages(counts, options.sizes()))


def _counts(
    found: Sequence[TaskClass], images: Sequence[int], groups: Sequence[int]
) -> ClassCounts:
    """What the classes have, given the number of images and the sample group of every strip."""
    names = list(dict.fromkeys(one.group for one in found))
    in_groups = []
    for one in found:
        sizes_of: dict[int, int] = {}
        for number in one.strips:
            group = groups[number]
            sizes_of[group] = sizes_of.get(group, 0) + images[number]
        in_groups.append(tuple(sizes_of[group] for group in sorted(sizes_of)))
    return ClassCounts(
        rows=[sum(some) for some in in_groups],
        names=[one.name for one in found],
        in_groups=in_groups,
        class_groups=[names.index(one.group) for one in found],
    )
