"""The typefaces that matplotlib bundles, and the letters of their scripts.

Everything here is torch-free and cheap: a data set is described by a shipped table of
letters (``letters.json``), made from the fonts by ``metaforge_glyphs.scan``.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from metaforge.errors import DataError

LICENCE = (
    "DejaVu fonts: Bitstream Vera licence, changes in the public domain; "
    "STIX fonts: STIX Font License (as bundled with matplotlib)"
)


class Face(NamedTuple):
    """One typeface: its file, its type family, and the split that has it as a class."""

    name: str
    file: str
    family: str
    split: str


def _face(name: str, file: str, split: str) -> Face:
    return Face(name, f"{file}.ttf", name.split(",")[0], split)


#: Splits mix families, weights and slants, so that they ask for the same distinctions.
#: The order is part of the data: an image is seeded by its face's index.
FACES: tuple[Face, ...] = (
    _face("DejaVu Sans, regular", "DejaVuSans", "train"),
    _face("DejaVu Sans, bold", "DejaVuSans-Bold", "test"),
    _face("DejaVu Sans, oblique", "DejaVuSans-Oblique", "val"),
    _face("DejaVu Sans, bold oblique", "DejaVuSans-BoldOblique", "train"),
    _face("DejaVu Sans Mono, regular", "DejaVuSansMono", "val"),
    _face("DejaVu Sans Mono, bold", "DejaVuSansMono-Bold", "train"),
    _face("DejaVu Sans Mono, oblique", "DejaVuSansMono-Oblique", "test"),
    _face("DejaVu Sans Mono, bold oblique", "DejaVuSansMono-BoldOblique", "val"),
    _face("DejaVu Serif, regular", "DejaVuSerif", "test"),
    _face("DejaVu Serif, bold", "DejaVuSerif-Bold", "val"),
    _face("DejaVu Serif, italic", "DejaVuSerif-Italic", "val"),
    _face("DejaVu Serif, bold italic", "DejaVuSerif-BoldItalic", "test"),
    _face("STIX, regular", "STIXGeneral", "train"),
    _face("STIX, bold", "STIXGeneralBol", "test"),
    _face("STIX, italic", "STIXGeneralItalic", "train"),
    _face("STIX, bold italic", "STIXGeneralBolIta", "train"),
)

#: Script (the first words of its letters' Unicode names) -> split.
SCRIPTS: dict[str, str] = {
    "Latin": "train",
    "Cyrillic": "train",
    "Canadian syllabics": "train",
    "Arabic": "train",
    "Armenian": "val",
    "Lao": "val",
    "Lisu": "val",
    "Old Italic": "val",
    "Greek": "test",
    "Georgian": "test",
    "Hebrew": "test",
    "Coptic": "test",
}

#: A letter that fewer faces have is left out.
MIN_FACES = 4


def script_of(char: str) -> str | None:
    """The script of a letter, None for anything else (modifier letters and symbols too)."""
    if unicodedata.category(char) not in {"Lu", "Ll", "Lt", "Lo"}:
        return None
    name = unicodedata.name(char, "")
    return next((script for script in SCRIPTS if name.startswith(script.upper() + " ")), None)


@cache
def font_folder() -> Path:
    """Where matplotlib keeps its fonts, found without importing it (that costs half a second)."""
    spec = find_spec("matplotlib")
    if spec is None or spec.origin is None:
        raise DataError("glyphs: matplotlib, whose fonts are drawn, is not installed")
    return Path(spec.origin).with_name("mpl-data") / "fonts" / "ttf"


def font_path(face: Face) -> Path:
    """The face's file; ``DataError`` if this matplotlib does not bundle it."""
    path = font_folder() / face.file
    if not path.is_file():
        raise DataError(
            f"glyphs: {path} is missing; reinstall matplotlib with its bundled fonts "
            "(pip install --force-reinstall --no-deps matplotlib)"
        )
    return path


@cache
def fonts_digest() -> str:
    """Hex digest of the font files' bytes, in the order of ``FACES``."""
    digest = hashlib.blake2b(digest_size=16)
    for face in FACES:
        digest.update(font_path(face).read_bytes())
    return digest.hexdigest()


@cache
def tables_digest() -> str:
    """Hex digest of the directories that the font files open with, in the order of ``FACES``.

    A directory has a checksum of every table of its file (OpenType specification, "Table
    directory"), so other outlines or character maps have another digest. The files are not
    read, which makes this many times as fast as ``fonts_digest``.
    """
    digest = hashlib.blake2b(digest_size=16)
    for face in FACES:
        with font_path(face).open("rb") as file:
            head = file.read(12)
            n_tables = int.from_bytes(head[4:6], "big")
            digest.update(head + file.read(16 * n_tables))
    return digest.hexdigest()


def covered_letters() -> dict[str, tuple[int, ...]]:
    """Letter -> indices of the faces whose character map has it, in code point order."""
    from fontTools.ttLib import TTFont

    faces: dict[str, list[int]] = {}
    for index, face in enumerate(FACES):
        with TTFont(font_path(face), lazy=True) as font:
            for code in font.getBestCmap():
                if script_of(chr(code)):
                    faces.setdefault(chr(code), []).append(index)
    return {char: tuple(found) for char, found in sorted(faces.items())}
