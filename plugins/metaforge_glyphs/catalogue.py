"""Which images there are, and the pools that tasks are drawn from. Torch-free, draws nothing.

An image is in one split, by its letter's script. Letters of the training scripts are drawn
in the training faces alone, so that neither meta-training nor the backbone's pre-training
sees a face that a validation or test task asks for.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

import numpy as np

from metaforge.components import Context
from metaforge.pools import Pool, TaskSizes
from metaforge.sampling_checks import problems
from metaforge_glyphs import GlyphsOptions, Kinds
from metaforge_glyphs.fonts import FACES, SCRIPTS
from metaforge_glyphs.letters import Letter, letters

SPLITS = ("train", "val", "test")
KINDS = ("letters", "typefaces")
#: Letters are dealt to so many buckets; a bucket is never on both sides of a task.
LETTER_BUCKETS = 8

_SCRIPT_NAMES = tuple(SCRIPTS)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """One row an image: the kind of task it is for [n] (an index into ``KINDS``), its letter
    [n], its face [n] (an index into ``FACES``), and its number k [n] among those.

    A letter's rows of one kind are consecutive, and face by face among them.
    """

    letters: tuple[Letter, ...]
    kind: np.ndarray
    letter: np.ndarray
    face: np.ndarray
    k: np.ndarray

    def __len__(self) -> int:
        return len(self.letter)

    @cached_property
    def codes(self) -> np.ndarray:
        """[n]: each image's code point."""
        return np.array([ord(letter.char) for letter in self.letters])[self.letter]

    @cached_property
    def script(self) -> np.ndarray:
        """[n]: each image's script, an index into ``SCRIPTS``."""
        numbers = [_SCRIPT_NAMES.index(letter.script) for letter in self.letters]
        return np.array(numbers)[self.letter]

    def rows(self, kind: str, split: str) -> np.ndarray:
        """The images of one kind in one split, ascending."""
        splits = np.array([one == split for one in SCRIPTS.values()])
        return np.flatnonzero(splits[self.script] & (self.kind == KINDS.index(kind)))


def catalogue(options: GlyphsOptions) -> Catalogue:
    """For letter tasks ``per_letter`` images of every letter, spread over its faces; for
    typeface tasks ``per_face`` of every letter in each of the faces that its split asks for."""
    kept = letters()
    split_of = [face.split for face in FACES]
    drawn: list[tuple[int, int, int, int]] = []  # kind, letter, face, number of images
    asked: list[tuple[int, int, int, int]] = []
    for number, letter in enumerate(kept):
        split = SCRIPTS[letter.script]
        own = [face for face in letter.faces if split_of[face] == split]
        faces = own if split == "train" else letter.faces
        for position, face in enumerate(faces):
            count = len(range(position, options.per_letter, len(faces)))
            drawn.append((0, number, face, count))
        asked += [(1, number, face, options.per_face) for face in own]
    table = np.array(drawn + asked)
    counts = table[:, 3]
    first = np.cumsum(counts) - counts
    k = np.arange(counts.sum()) - np.repeat(first, counts)
    kind, letter_of, face_of = np.repeat(table[:, :3], counts, axis=0).T
    return Catalogue(kept, kind, letter_of, face_of, k)


def sizes(options: GlyphsOptions) -> TaskSizes:
    return TaskSizes(options.ways, options.shots, options.queries, options.too_few)


def pools(options: GlyphsOptions, images: Catalogue) -> dict[str, list[Pool]]:
    """For each split, a pool for each kind of task that has a share."""
    makers = {"letters": _letters_pool, "typefaces": _typefaces_pool}
    used = [makers[kind] for kind in KINDS if getattr(options.kinds, kind) > 0]
    groups = sample_groups(images)
    return {split: [make(split, options, images, groups) for make in used] for split in SPLITS}


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
    return found + problems(pools(options, catalogue(options)), sizes(options))


def _letters_pool(
    split: str, options: GlyphsOptions, images: Catalogue, groups: np.ndarray
) -> Pool:
    """Classes are letters; support and query of a task are of different type families.

    So the letters of a task must be drawn in the same families: its class groups are a
    script (or all scripts, unless ``within``) and a set of families.
    """
    rows = images.rows("letters", split)
    members, numbers = _grouped(rows, images.letter[rows])
    chosen = [images.letters[number] for number in numbers]
    keys = [
        f"{letter.script if options.within else 'all'} in {_families(images.face[rows].tolist())}"
        for letter, rows in zip(chosen, members, strict=True)
    ]
    names = tuple(dict.fromkeys(keys))
    return Pool(
        name="letters",
        members=members,
        class_names=tuple(f"{a.script} {a.char} U+{ord(a.char):04X}" for a in chosen),
        class_groups=np.array([names.index(key) for key in keys]),
        class_group_names=names,
        sample_groups=groups,
        within=True,
        weight=options.kinds.letters,
    )


def _families(faces: list[int]) -> str:
    return " + ".join(dict.fromkeys(FACES[face].family for face in sorted(set(faces))))


def _typefaces_pool(
    split: str, options: GlyphsOptions, images: Catalogue, groups: np.ndarray
) -> Pool:
    """Classes are faces (each script's own, if ``within``); letters never straddle a task."""
    rows = images.rows("typefaces", split)
    script = images.script if options.within else np.zeros(len(images), int)
    members, keys = _grouped(rows, (script * len(FACES) + images.face)[rows])
    # A script with fewer faces than ways makes no task.
    kept = np.bincount(keys // len(FACES), minlength=1)[keys // len(FACES)] >= options.ways
    members, keys = tuple(compress(members, kept)), keys[kept]
    names = [FACES[face].name for face in keys % len(FACES)]
    if options.within:
        owners = [_SCRIPT_NAMES[number] for number in keys // len(FACES)]
        names = [f"{name} ({owner})" for name, owner in zip(names, owners, strict=True)]
    return Pool(
        name="typefaces",
        members=members,
        class_names=tuple(names),
        class_groups=keys // len(FACES),
        class_group_names=_SCRIPT_NAMES if options.within else ("all",),
        sample_groups=groups,
        within=True,
        weight=options.kinds.typefaces,
    )


def _grouped(rows: np.ndarray, keys: np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The rows of each key, and the keys in ascending order."""
    order = np.argsort(keys, kind="stable")
    values, starts = np.unique(keys[order], return_index=True)
    return tuple(np.split(rows[order], starts[1:])), values


def sample_groups(images: Catalogue) -> np.ndarray:
    """[n]: what is never on both sides of a task. Of letter tasks a type family (or a face,
    where the letter is drawn in one family alone), of typeface tasks a bucket of letters."""
    family = _families_or_faces(images)
    bucket = family.max() + 1 + _letter_buckets(images)
    return np.where(images.kind == KINDS.index("letters"), family, bucket)


def _families_or_faces(images: Catalogue) -> np.ndarray:
    families = list(dict.fromkeys(face.family for face in FACES))
    family = np.array([families.index(face.family) for face in FACES])[images.face]
    own = images.kind == KINDS.index("letters")
    used = np.zeros((len(images.letters), len(families)), bool)
    used[images.letter[own], family[own]] = True
    alone = used.sum(1) == 1
    return np.where(alone[images.letter], len(families) + images.face, family)


def _letter_buckets(images: Catalogue) -> np.ndarray:
    """The same bucket for a letter's cases and accents."""
    bases = [unicodedata.normalize("NFKD", one.char)[0].casefold() for one in images.letters]
    number = {base: i for i, base in enumerate(dict.fromkeys(bases))}
    return np.array([number[base] % LETTER_BUCKETS for base in bases])[images.letter]
