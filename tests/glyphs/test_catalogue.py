"""Splits, families and what is wrong with a task's sizes, before anything is drawn."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from metaforge import sampling_checks
from metaforge.components import Context
from metaforge.sampling import TaskSampler
from metaforge_glyphs.catalogue import catalogue, pools
from metaforge_glyphs.fonts import FACES, SCRIPTS
from metaforge_glyphs.options import GlyphsOptions, Kinds
from metaforge_glyphs.plan import KINDS, SPLITS, check

OPTIONS = GlyphsOptions()


@pytest.fixture(scope="module")
def images():
    return catalogue(OPTIONS)


def problems(**options) -> list[str]:
    return check(GlyphsOptions(**options), Context())


def rows_of(pool) -> np.ndarray:
    return np.concatenate(pool.members)


def test_forty_images_of_every_letter_spread_over_its_faces(images):
    rows = np.concatenate([images.rows("letters", split) for split in SPLITS])
    counts = np.bincount(images.letter[rows])
    assert set(counts[counts > 0].tolist()) == {OPTIONS.per_letter} == {40}
    pairs, each = np.unique(
        np.stack([images.letter[rows], images.face[rows]]), axis=1, return_counts=True
    )
    per_letter = [each[pairs[0] == letter] for letter in np.unique(pairs[0])[::50]]
    assert all(np.ptp(some) <= 1 for some in per_letter)
    keys = np.stack([images.kind, images.letter, images.face, images.k])
    assert len(np.unique(keys, axis=1).T) == len(images)


def test_splits_share_no_script_and_typeface_tasks_no_face(images):
    of_split = pools(OPTIONS, images)
    scripts, faces = {}, {}
    for split, (letters, typefaces) in of_split.items():
        scripts[split] = set(images.script[np.r_[rows_of(letters), rows_of(typefaces)]].tolist())
        faces[split] = set(images.face[rows_of(typefaces)].tolist())
        assert {FACES[face].split for face in faces[split]} == {split}
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        assert not scripts[one] & scripts[other]
        assert not faces[one] & faces[other]


def test_nothing_of_the_training_split_shows_a_held_out_face(images):
    for kind in KINDS:
        assert {FACES[f].split for f in images.face[images.rows(kind, "train")]} == {"train"}


@pytest.mark.parametrize("within", [True, False])
def test_families_and_letters_never_straddle_a_task(images, within):
    options = OPTIONS.model_copy(update={"within": within})
    of_split = pools(options, images)
    sampler = TaskSampler(of_split, options.sizes(), seed=0)
    family = np.array([face.family for face in FACES])[images.face]
    for split in SPLITS:
        drawn = sampler.draw(split, np.arange(300))
        for pool, support, query in zip(drawn.pools, drawn.support, drawn.query, strict=True):
            if KINDS[pool] == "typefaces":
                assert not set(images.letter[support.ravel()]) & set(images.letter[query.ravel()])
                continue
            for own, asked in zip(support, query, strict=True):
                # Families where the letter has several, else faces.
                shown = family if len(set(family[np.r_[own, asked]])) > 1 else images.face
                assert not set(shown[own]) & set(shown[asked])


def test_within_draws_the_letters_of_a_task_from_one_script(images):
    def scripts(within: bool) -> int:
        options = OPTIONS.model_copy(update={"within": within})
        drawn = TaskSampler(pools(options, images), options.sizes(), 0).draw("test", np.arange(200))
        return max(len(set(images.script[rows.ravel()])) for rows in drawn.support)

    assert scripts(within=True) == 1
    assert scripts(within=False) > 1


def test_a_letters_cases_and_accents_share_a_bucket(images):
    groups = images.sample_groups
    rows = np.concatenate([images.rows("typefaces", split) for split in SPLITS])
    bucket = {images.letters[images.letter[row]].char: groups[row] for row in rows}
    assert bucket["E"] == bucket["e"] == bucket["é"] == bucket["Ḗ"]
    assert bucket["Ω"] == bucket["ὠ"]
    assert len(set(bucket.values())) == 8


def test_the_default_can_be_drawn():
    assert problems() == []


@pytest.mark.parametrize("shots", [1, 5, (1, 5)])
@pytest.mark.parametrize("within", [True, False])
def test_usual_sizes_can_be_drawn(shots, within):
    assert problems(shots=shots, within=within) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 7}, "ways is 7, but a split has as few as 5 typefaces; lower ways to 5"),
        ({"ways": 7, "kinds": {"letters": 0, "typefaces": 1}}, "or set kinds.typefaces to 0"),
        ({"queries": 40}, "class 'Latin A U+0041' has 40 rows in"),
        ({"shots": 20, "queries": 20}, r"in other sample groups"),
        ({"per_letter": 10}, "choose too_few: drop or replace"),
        ({"ways": 400, "kinds": {"typefaces": 0}}, "no class group has the 400 classes"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_named(options, message):
    found = problems(**options)
    assert any(message in line for line in found), found[:3]


def test_both_faults_of_a_recipe_are_named():
    found = problems(ways=7, queries=40)
    assert found[0].startswith("ways is 7")
    assert any("has 40 rows" in line for line in found)


@pytest.mark.parametrize("changed", [{}, {"within": False}, {"queries": 40}, {"ways": 400}])
def test_the_check_finds_what_the_pools_themselves_tell(changed):
    options = OPTIONS.model_copy(update={"kinds": Kinds(typefaces=0), **changed})
    drawn = pools(options, catalogue(options))
    assert check(options, Context()) == sampling_checks.problems(drawn, options.sizes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": {"letters": 0, "typefaces": 0}}, "are both 0"),
        ({"kinds": {"letters": -1}}, "greater than or equal to 0"),
        ({"kinds": {"words": 1}}, "Extra inputs"),
        ({"kinds": {"letters": float("inf")}}, "finite"),
        ({"shots": (5, 1)}, "write"),
        ({"distortion": {"letters": {"noise": 2}}}, "less than or equal to 1"),
        ({"backbone": None}, "input: features needs a backbone"),
        ({"backbone": None, "input": "images", "normalize": "none"}, "normalize: not read"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GlyphsOptions(**options)


def test_a_distortion_keeps_the_defaults_it_does_not_name():
    changed = GlyphsOptions(distortion={"letters": {"noise": 0.1}}).distortion
    assert changed.letters.noise == 0.1
    assert changed.letters.occlusion == OPTIONS.distortion.letters.occlusion
    assert changed.typefaces == OPTIONS.distortion.typefaces


def test_the_check_draws_nothing_and_imports_no_array_library():
    code = (
        "import sys\n"
        "from metaforge_glyphs.options import GlyphsOptions\n"
        "from metaforge_glyphs.plan import check\n"
        "assert check(GlyphsOptions(), None) == []\n"
        "bad = {'torch', 'numpy', 'matplotlib', 'PIL', 'fontTools'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_scripts_and_splits_agree():
    assert set(SCRIPTS.values()) == set(SPLITS)
    train = [name for name, split in SCRIPTS.items() if split == "train"]
    assert train == ["Latin", "Cyrillic", "Canadian syllabics", "Arabic"]
    assert {"Greek", "Georgian", "Hebrew"} <= {n for n, s in SCRIPTS.items() if s == "test"}
