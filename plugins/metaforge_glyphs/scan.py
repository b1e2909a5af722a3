"""How the table of letters is made from the fonts: ``python -m metaforge_glyphs.scan``.
 Two letters *look the same*
where their clean images nearly coincide in at least one face that has both: relative
squared distance |a - b|^2 / (|a| |b|) below a threshold.

* Of letters of one script that cannot be told apart (``SAME``), the first is kept.
* A held-out letter that looks like one of another script (``ALIKE``) is left out, be that
  script one for training or another held-out one: Greek and Cyrillic A, say.
* Of the training scripts' letters that look like each other, the first script's is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from metaforge_glyphs.fonts import (
    FACES,
    MIN_FACES,
    SCRIPTS,
    covered_letters,
    script_of,
    tables_digest,
)
from metaforge_glyphs.letters import TABLE, Letter, letters

SAME, ALIKE = 0.02, 0.06


def scan() -> tuple[Letter, ...]:
    """The letters of the installed fonts, without those that look the same as another."""
    found, images = _drawn()
    same, alike = _look_alikes(images)
    scripts = np.array([list(SCRIPTS).index(letter.script) for letter in found])
    training = np.array([SCRIPTS[letter.script] == "train" for letter in found])
    # A training letter yields to earlier training scripts, a held-out one to all others.
    rivals = np.where(
        training[:, None],
        training & (scripts < scripts[:, None]),
        scripts != scripts[:, None],
    )
    kept: np.ndarray = np.logical_not((alike & rivals).any(1))
    for i in np.flatnonzero(kept):
        kept[i] = not (same[i, :i] & kept[:i] & (scripts[:i] == scripts[i])).any()
    chosen = [letter for letter, keep in zip(found, kept, strict=True) if keep]
    return tuple(sorted(chosen, key=lambda letter: list(SCRIPTS).index(letter.script)))


def _drawn() -> tuple[list[Letter], np.ndarray]:
    """Letters with ink in enough faces, and their clean images [n, faces, 784], 0 if none."""
    from metaforge_glyphs.render import clean

    found, images = [], []
    for char, covered in covered_letters().items():
        if len(covered) < MIN_FACES:
            continue
        drawn = {face: image for face in covered if (image := clean(char, face)) is not None}
        if len(drawn) >= MIN_FACES:
            found.append(Letter(char, str(script_of(char)), tuple(drawn)))
            blank = np.zeros((len(FACES), 28 * 28), np.float32)
            for face, image in drawn.items():
                blank[face] = image.ravel() / np.float32(255)
            images.append(blank)
    return found, np.stack(images)


def _look_alikes(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two [n, n] bool: which letters are the ``SAME``, and which ``ALIKE``, in some face."""
    nearest = np.full((len(images), len(images)), np.inf, np.float32)
    for face in range(images.shape[1]):
        drawn = np.flatnonzero(images[:, face].any(-1))
        x = images[drawn, face]
        square = (x * x).sum(1)
        distance = square[:, None] + square - 2 * x @ x.T
        distance /= np.sqrt(square[:, None] * square)
        pairs = np.ix_(drawn, drawn)
        nearest[pairs] = np.minimum(nearest[pairs], distance)
    np.fill_diagonal(nearest, np.inf)
    return nearest < SAME, nearest < ALIKE


def pack(found: Iterable[Letter]) -> dict[str, object]:
    """The table: for each script, the letters of each set of faces (a bit mask, in hex)."""
    scripts: dict[str, dict[str, str]] = {script: {} for script in SCRIPTS}
    for letter in found:
        mask = f"{sum(1 << face for face in letter.faces):04x}"
        scripts[letter.script][mask] = scripts[letter.script].get(mask, "") + letter.char
    return {"fonts": tables_digest(), "scripts": scripts}


def main() -> None:
    text = json.dumps(pack(scan()), ensure_ascii=False, indent=1)
    TABLE.write_text(text + "\n", encoding="utf-8")
    counts = {script: sum(a.script == script for a in letters()) for script in SCRIPTS}
    print(f"{TABLE}: {sum(counts.values())} letters: {counts}")


if __name__ == "__main__":
    main()
