"""Which letters there are: scripts, faces, and letters that look like others."""

from __future__ import annotations

import random

import numpy as np
import pytest
from fontTools.ttLib import TTFont

from metaforge.errors import DataError
from metaforge_glyphs import fonts, letters, scan
from metaforge_glyphs.fonts import FACES, MIN_FACES, SCRIPTS, covered_letters, script_of
from metaforge_glyphs.render import clean


@pytest.fixture(scope="module")
def scanned():
    return scan.scan()


def chars(found, script: str | None = None) -> set[str]:
    return {letter.char for letter in found if script in (None, letter.script)}


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The relative squared distance that ``letters`` describes."""
    a, b = a.astype(float).ravel(), b.astype(float).ravel()
    return float(((a - b) ** 2).sum() / np.sqrt((a @ a) * (b @ b)))


def test_the_shipped_table_is_what_the_fonts_have(scanned):
    # A few letters are at a threshold, which another version of FreeType may shift.
    table = letters.letters()
    assert len(chars(table) ^ chars(scanned)) <= 0.01 * len(table)
    assert letters._unpack(scan.pack(scanned)) == scanned


def test_a_dozen_scripts_of_letters_in_several_faces():
    table = letters.letters()
    assert len(table) > 2000
    assert {letter.script for letter in table} == set(SCRIPTS)
    assert all(MIN_FACES <= len(letter.faces) <= len(FACES) for letter in table)
    assert all(script_of(letter.char) == letter.script for letter in table)
    assert len(chars(table)) == len(table)


def test_every_face_of_a_letter_draws_it():
    some = random.Random(0).sample(letters.letters(), 100)
    for letter in some:
        for face in letter.faces:
            image = clean(letter.char, face)
            assert image is not None
            assert image.any()


def test_placeholders_and_symbols_are_no_letters():
    assert not any("LastResort" in face.file or "Siz" in face.file for face in FACES)
    # A modifier letter, mathematical A, the ohm sign, symbols, a digit.
    for char in "\u02b0\U0001d400\u2126\u211e\u2460\u2192\u00aa5_":
        assert script_of(char) is None, char


def test_no_held_out_letter_looks_like_one_of_another_script(scanned):
    lost = {"Greek": "\u0391\u0392\u0395\u03bf", "Armenian": "\u0555\u0585", "Lisu": "\ua4d0\ua4ee"}
    for script, out in lost.items():  # capital A, B, E, small o; O, o; B, A
        assert all(script_of(char) == script for char in out)
        assert not set(out) & chars(scanned, script)
    assert set("ΞΨΩβλφ") <= chars(scanned, "Greek")
    assert set("ԱԲ") <= chars(scanned, "Armenian")
    held = [letter for letter in scanned if SCRIPTS[letter.script] != "train"]
    assert distance(clean("\u0391", 0), clean("A", 0)) < scan.ALIKE  # what must not be left
    for face in (0, 8, 12):
        drawn = {a.char: clean(a.char, face) for a in held if face in a.faces}
        for other, image in {c: clean(c, face) for c in "AEHOIPBoxcpyАЖБШл"}.items():
            for char, own in drawn.items():
                assert distance(own, image) >= scan.ALIKE, (char, other, FACES[face].name)


def test_training_letters_yield_to_earlier_training_scripts_alone(scanned):
    assert set("AOo") <= chars(scanned, "Latin")
    assert not set("\u0410\u041e\u043e") & chars(scanned, "Cyrillic")  # A, O, o
    assert set("\u0416\u042f") <= chars(scanned, "Cyrillic")  # Zhe, Ya


def test_letters_of_a_script_that_cannot_be_told_apart_are_one(scanned):
    assert "S" in chars(scanned, "Latin")
    assert "\ua731" not in chars(scanned, "Latin")  # small capital S
    assert "\u03ac" in chars(scanned)  # alpha with tonos
    assert "\u1f71" not in chars(scanned)  # alpha with oxia


def test_look_alikes_are_found_in_any_face_and_nowhere_else():
    rng = np.random.default_rng(0)
    images = rng.random((4, 2, 784)).astype(np.float32)
    images[1, 1] = images[0, 1]  # the same in one face
    images[2, 0] = images[0, 0] + 0.5 * rng.random(784) - 0.25  # alike in the other
    images[3, 1] = 0  # drawn in one face alone
    same, alike = scan._look_alikes(images)
    assert np.argwhere(same).tolist() == [[0, 1], [1, 0]]
    assert np.argwhere(alike).tolist() == [[0, 1], [0, 2], [1, 0], [2, 0]]


def test_other_fonts_are_scanned(monkeypatch):
    marker = (letters.Letter("A", "Latin", (0, 1, 2, 3)),)
    monkeypatch.setattr(letters, "tables_digest", lambda: "of other fonts")
    monkeypatch.setattr(scan, "scan", lambda: marker)
    assert letters.letters.__wrapped__() == marker


def test_a_font_with_other_letters_has_another_digest(tmp_path, monkeypatch):
    for face in FACES:
        (tmp_path / face.file).symlink_to(fonts.font_path(face))
    monkeypatch.setattr(fonts, "font_folder", lambda: tmp_path)
    shipped = fonts.tables_digest()
    assert fonts.tables_digest.__wrapped__() == shipped
    changed = tmp_path / FACES[3].file
    with TTFont(changed) as font:
        changed.unlink()
        for table in font["cmap"].tables:
            table.cmap.pop(ord("A"), None)
        font.save(changed)
    assert fonts.tables_digest.__wrapped__() != shipped


def test_a_face_that_is_not_bundled_is_named():
    gone = FACES[0]._replace(file="Gone.ttf")
    with pytest.raises(DataError, match=r"Gone\.ttf is missing; reinstall matplotlib"):
        fonts.font_path(gone)


def test_faces_are_split_without_overlap_and_every_split_mixes_families():
    for split in ("train", "val", "test"):
        own = [face for face in FACES if face.split == split]
        assert len(own) >= 5
        assert len({face.family for face in own}) >= 3
    assert len({face.file for face in FACES}) == len(FACES) == 16


def test_covered_letters_are_in_the_character_maps():
    covered = covered_letters()
    assert covered["A"] == tuple(range(16))
    assert len(covered["ᐁ"]) == 4
