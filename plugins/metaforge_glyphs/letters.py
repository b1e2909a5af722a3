"""Which letters there are: the shipped table, which ``metaforge_glyphs.scan`` made."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from metaforge_glyphs.fonts import FACES, SCRIPTS, tables_digest

TABLE = Path(__file__).with_name("letters.json")


class Letter(NamedTuple):
    """A letter, its script, and the faces (indices into ``FACES``) that draw it."""

    char: str
    script: str
    faces: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.script} {self.char} U+{ord(self.char):04X}"


@cache
def letters() -> tuple[Letter, ...]:
    """The letters, script by script, in code point order.

    The shipped table answers if the installed fonts are those it was made from; others
    are scanned, which takes some twenty seconds.
    """
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    if table["fonts"] == tables_digest():
        return _unpack(table)
    from metaforge_glyphs.scan import scan

    return scan()


def _unpack(table: dict) -> tuple[Letter, ...]:
    found = []
    for script, by_mask in table["scripts"].items():
        for mask, chars in by_mask.items():
            faces = tuple(i for i in range(len(FACES)) if int(mask, 16) >> i & 1)
            found += [Letter(char, script, faces) for char in chars]
    order = list(SCRIPTS).index
    return tuple(sorted(found, key=lambda letter: (order(letter.script), letter.char)))
