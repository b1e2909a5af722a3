"""``arrays`` with images on disk: the same tasks as from memory, and what is wrong with files."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections import namedtuple

import numpy as np
import pytest

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.testing import datasets as laws
from metaforge.testing.datasets import Drawn
from metaforge_arrays import disk
from metaforge_arrays.layout import check
from metaforge_arrays.options import ArraysOptions
from metaforge_arrays.source import load

RNG = np.random.default_rng(0)
CLASSES, ROWS = 25, 6
N = CLASSES * ROWS
LABELS = np.repeat(np.arange(CLASSES), ROWS)
BYTES = RNG.integers(0, 256, size=(N, 5, 5), dtype=np.uint8)
KINDS = {
    "bytes": (BYTES, {}),
    "channels first": (RNG.integers(0, 256, size=(N, 3, 5, 5), dtype=np.uint8), {}),
    "channels last": (RNG.integers(0, 256, size=(N, 5, 5, 3), dtype=np.uint8), {}),
    "truth values": (BYTES > 128, {}),
    "bits": (np.packbits(BYTES.reshape(N, -1) > 128, axis=1), {"bits": [5, 5]}),
    "floats": (RNG.normal(size=(N, 5, 5)), {}),
    "big-endian": (RNG.normal(size=(N, 5, 5)).astype(">f4"), {}),
    "whole numbers": (BYTES.astype(np.int32), {}),
    "augmented": (BYTES, {"augment": {"rotations": "all", "crop": 1, "flip": True}}),
}


def put(folder, form, x=BYTES, y=LABELS):
    """An npz file, or a folder of npy files."""
    if form == "folder":
        path = folder / "images"
        path.mkdir(exist_ok=True)
        np.save(path / "X.npy", x)
        np.save(path / "y.npy", y)
        return path
    path = folder / "images.npz"
    save = np.savez_compressed if form == "compressed" else np.savez
    save(path, X=x, y=y)
    return path


def options(path, **more) -> ArraysOptions:
    return ArraysOptions(**{"path": path, "ways": 3, "queries": 2, "storage": "disk", **more})


@pytest.fixture
def heard(tmp_path):
    """A context whose cache folder is its own, and the lines that it reports."""
    lines: list[str] = []
    return Context(cache_dir=tmp_path / "cache", report=lines.append), lines


def source(path, context, **more):
    return load(options(path, **more), context)


# -- the same tasks ------------------------------------------------------------------


@pytest.mark.parametrize("form", ["folder", "npz", "compressed"])
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_those_from_memory(tmp_path, heard, kind, form):
    x, more = KINDS[kind]
    path, (context, _) = put(tmp_path, form, x), heard
    assert check(options(path, **more), context) == []
    kept = source(path, context, **more)
    held = source(path, context, **more, storage="memory")
    assert kept.shape == held.shape
    for split in ("train", "test"):
        one, other = (some.batch(split, range(40)) for some in (kept, held))
        laws.assert_same(one, other, "disk and memory")
        assert one.support_x.dtype == other.support_x.dtype
        assert kept.describe_task(split, 7) == held.describe_task(split, 7)
    assert kept.batch("train", range(40), "features").support_x.equal(
        held.batch("train", range(40), "features").support_x
    )


def test_every_law(tmp_path, heard):
    path, (context, _) = put(tmp_path, "npz"), heard

    def make(seed):
        return load(options(path), Context(seed=seed, cache_dir=context.cache_dir))

    laws.check_task_source(make, tasks=60)


def test_another_process_draws_the_same_tasks(tmp_path, heard):
    path, (context, _) = put(tmp_path, "folder"), heard
    silent = Context(cache_dir=context.cache_dir)
    laws.check_processes(Drawn(source(path, silent), "train", range(20)))


def test_features_of_images_on_disk_are_in_memory(tmp_path, heard):
    path, (context, _) = put(tmp_path, "folder"), heard
    np.save(path / "phi.npy", RNG.normal(size=(N, 3)))
    one = source(path, context, features="phi", normalize="l2")
    assert one.batch("train", [0], "features").support_x.shape == (1, 3, 3)
    assert one.batch("train", [0]).support_x.shape == (1, 3, 1, 5, 5)


# -- the cache -----------------------------------------------------------------------


def files(context):
    return {path: path.stat().st_mtime_ns for path in (context.cache_dir / "arrays").iterdir()}


def test_a_file_is_copied_and_looked_through_once(tmp_path, heard, monkeypatch):
    path, (context, lines) = put(tmp_path, "compressed"), heard
    monkeypatch.setattr(disk, "_PROGRESS", 1000)
    first = source(path, context)
    assert sorted(one.suffix for one in files(context)) == [".json", ".npy"]
    assert any("copied x ('X' of " in line for line in lines)
    assert any("looked through x ('X' of " in line and "(once)" in line for line in lines)
    before, lines[:] = files(context), []
    assert source(path, context).fingerprint == first.fingerprint
    assert (files(context), lines) == (before, [])


def test_a_copy_that_was_cut_short_is_made_anew(tmp_path, heard):
    path, (context, _) = put(tmp_path, "npz"), heard
    first = source(path, context)
    (copy,) = [one for one in files(context) if one.suffix == ".npy"]
    copy = next(context.cache_dir.rglob(copy.name))
    os.truncate(copy, copy.stat().st_size // 2)
    assert source(path, context).fingerprint == first.fingerprint


def test_files_of_one_s_own_are_not_copied(tmp_path, heard):
    path, (context, _) = put(tmp_path, "folder"), heard
    source(path, context)
    assert [one.suffix for one in files(context)] == [".json"]


@pytest.mark.parametrize("form", ["folder", "npz"])
def test_a_changed_file_is_other_data(tmp_path, heard, form):
    path, (context, _) = put(tmp_path, form), heard
    first = source(path, context)
    changed = BYTES.copy()
    changed[3, 2, 2] ^= 1
    path = put(tmp_path, form, changed)
    os.utime(path if form == "npz" else path / "X.npy", ns=(1, 1))
    again = source(path, context)
    assert again.fingerprint != first.fingerprint
    held = source(path, context, storage="memory")
    laws.assert_same(again.batch("train", range(40)), held.batch("train", range(40)), "changed")


def test_equal_files_are_equal_data(tmp_path, heard):
    context, _ = heard
    (tmp_path / "other").mkdir()
    prints = {
        source(path, context).fingerprint
        for path in (put(tmp_path, "npz"), put(tmp_path, "folder"), put(tmp_path / "other", "npz"))
    }
    assert len(prints) == 1


def test_a_damaged_note_is_made_anew(tmp_path, heard):
    path, (context, _) = put(tmp_path, "folder"), heard
    first = source(path, context).fingerprint
    (note,) = files(context)
    for text in ("", "[]", '{"digest": 3}'):
        note.write_text(text)
        assert source(path, context).fingerprint == first


# -- what is wrong -------------------------------------------------------------------


def test_a_damaged_archive_leaves_no_copy(tmp_path, heard):
    large = RNG.integers(0, 256, size=(N, 50, 50), dtype=np.uint8)
    path, (context, _) = put(tmp_path, "npz", large), heard
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("X.npy").header_offset
    data[start + 200_000] ^= 255
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"array 'X' is damaged \(Bad CRC.*copy the file again"):
        source(path, context)
    assert list((context.cache_dir / "arrays").iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_told(tmp_path, heard):
    path, (context, _) = put(tmp_path, "npz"), heard
    context.cache_dir.write_text("a file")
    with pytest.raises(DataError, match=r"cannot be made.*METAFORGE_CACHE"):
        source(path, context)


@pytest.mark.parametrize(
    ("value", "words"), [(np.nan, "hold NaN or infinite"), (1e30, "too large for float32")]
)
def test_numbers_that_cannot_be_used_are_named_by_row(tmp_path, heard, monkeypatch, value, words):
    monkeypatch.setattr("metaforge.storage._READ", 1)  # row by row
    context, _ = heard
    x = BYTES.astype(np.float32)
    x[[7, 140]] = value
    path = put(tmp_path, "folder", x)
    with pytest.raises(DataError, match=f"2 rows of x .*{words}.*first 7, 140"):
        source(path, context)
    assert not (context.cache_dir / "arrays").exists()


def test_a_file_cut_short_is_told(tmp_path, heard):
    path, (context, _) = put(tmp_path, "folder"), heard
    data = (path / "X.npy").read_bytes()
    (path / "X.npy").write_bytes(data[:-1])
    assert "expected a whole npy file" in check(options(path), context)[0]
    with pytest.raises(DataError, match="cut short, copy it again"):
        source(path, context)


def test_too_little_room_is_found_before_the_run(tmp_path, heard, monkeypatch):
    path, (context, _) = put(tmp_path, "npz"), heard
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(1, 1, 100))
    (problem,) = check(options(path), context)
    assert "storage: disk copies x" in problem
    assert "METAFORGE_CACHE" in problem
    with pytest.raises(DataError, match="has 0 MiB left"):
        source(path, context)
    assert check(options(put(tmp_path, "folder")), context) == []


def test_features_stay_in_memory(tmp_path, heard):
    context, _ = heard
    path = put(tmp_path, "folder", BYTES.reshape(N, -1))
    (problem,) = check(options(path), context)
    assert "storage: disk is for images" in problem


@pytest.mark.parametrize("given", [{"x": BYTES, "path": None}, {"x": BYTES}], ids=["memory", "x"])
def test_only_files_are_on_disk(tmp_path, given):
    with pytest.raises(ValueError, match="storage: disk needs path, and x by its name there"):
        options(**{"path": tmp_path, **given})


def test_a_folder_serves_without_storage_on_disk_too(tmp_path, heard):
    context, _ = heard
    held = [
        source(put(tmp_path, form), context, storage="memory").fingerprint
        for form in ("folder", "npz")
    ]
    assert held[0] == held[1]
