"""``metaforge.storage``: rows of an npy file, read as they are asked for and let go again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from metaforge import storage
from metaforge.errors import DataError
from metaforge.storage import DiskRows, blocks, numbers_of

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, size=(700, 1, 9, 7), dtype=np.uint8)


def saved(tmp_path, array, name="x"):
    path = tmp_path / f"{name}.npy"
    np.save(path, array)
    return path


def doubled(rows, factor=2):
    return rows.reshape(len(rows), 63) * np.float32(factor)


@pytest.mark.parametrize("positions", [True, False], ids=["by place", "after seeking"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", ">f8", "bool"])
def test_rows_are_those_of_the_array(tmp_path, monkeypatch, dtype, positions):
    if not positions:  # as on Windows
        monkeypatch.delattr(os, "preadv")
    array = BYTES.astype(dtype)
    kept = DiskRows(saved(tmp_path, array), "digest")
    assert (kept.shape, kept.dtype, len(kept)) == (array.shape, array.dtype, 700)
    for rows in (RNG.integers(0, 700, 300), np.array([699, 0, 0]), np.array([], dtype=int)):
        assert np.array_equal(kept.take(rows), array[rows])


def test_rows_are_decoded(tmp_path):
    kept = DiskRows(saved(tmp_path, BYTES), "digest", doubled)
    assert (kept.shape, kept.dtype) == ((700, 63), np.float32)
    rows = np.array([5, 3])
    assert np.array_equal(kept.take(rows), doubled(BYTES[rows]))


def test_another_process_opens_the_file_anew(tmp_path):
    kept = DiskRows(saved(tmp_path, BYTES), "digest", partial(doubled, factor=3))
    text = pickle.dumps(kept)
    assert len(text) < 1000
    again = pickle.loads(text)
    assert again.digest == "digest"
    assert np.array_equal(again.take(np.arange(9)), kept.take(np.arange(9)))


def test_a_file_that_changes_in_use_is_told_here_and_in_another_process(tmp_path):
    path = saved(tmp_path, BYTES)
    kept = DiskRows(path, "digest")
    kept.take(np.array([1]))
    elsewhere = pickle.dumps(kept)
    with path.open("r+b") as file:  # one number, in place
        file.seek(-1, os.SEEK_END)
        file.write(b"\0")
    for use in (lambda: kept.take(np.array([1])), lambda: pickle.loads(elsewhere)):
        with pytest.raises(DataError, match="changed while it was in use"):
            use()


def test_a_file_cut_short_in_use_is_told(tmp_path):
    path = saved(tmp_path, BYTES)
    kept = DiskRows(path, "digest")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    os.truncate(path, path.stat().st_size - 1)
    os.utime(path, ns=times)
    kept.take(np.array([698]))
    with pytest.raises(DataError, match="cut short while it was in use"):
        kept.take(np.array([698, 699]))


@pytest.mark.parametrize("read", [1, 1 << 22], ids=["row by row", "at once"])
def test_blocks_are_all_rows_in_order(tmp_path, monkeypatch, read):
    monkeypatch.setattr(storage, "_READ", read)
    assert np.array_equal(np.concatenate(list(blocks(saved(tmp_path, BYTES)))), BYTES)


def broken(tmp_path, kind):
    if kind == "fortran":
        return saved(tmp_path, np.asfortranarray(BYTES[:, 0]))
    if kind == "objects":
        return saved(tmp_path, np.array([{}, 1], dtype=object))
    path = saved(tmp_path, BYTES)
    if kind == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif kind == "text":
        path.write_text("no numbers")
    elif kind == "version":
        data = bytearray(path.read_bytes())
        data[6] = 3
        path.write_bytes(data)
    else:
        path.unlink()
    return path


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fortran", "scattered.*ascontiguousarray"),
        ("objects", "Python objects"),
        ("short", r"44099 bytes of numbers, expected 44100.*copy it again"),
        ("text", "no npy file"),
        ("version", "npy format 3.0"),
        ("missing", "no npy file"),
    ],
)
def test_what_cannot_be_read_row_by_row_is_refused(tmp_path, kind, words):
    with pytest.raises(DataError, match=words):
        numbers_of(broken(tmp_path, kind))


#: A process of its own: its peak of resident memory, above what it had before the tasks.
MEMORY = """
import sys
import numpy as np
from metaforge.components import Context
from metaforge_arrays.options import ArraysOptions
from metaforge_arrays.source import load

def resident(kind):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(kind)).split()[1]) // 1024

import torch
torch.randn(64, 64) @ torch.randn(64, 64)
options = ArraysOptions(path=sys.argv[1], x="x", ways=5, shots=1, queries=5, storage=sys.argv[2])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = resident("VmRSS")
source = load(options, Context())
for first in range(0, 1200, 4):
    source.batch("train", range(first, first + 4))
print(resident("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """200 MiB of images of bytes, in 100 classes."""
    folder = tmp_path_factory.mktemp("bank")
    shape = (100 * 297, 84, 84)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, shape)
    for start in range(0, len(x), 2970):
        x[start : start + 2970] = RNG.integers(0, 256, size=(2970, 84, 84), dtype=np.uint8)
    x.flush()
    np.save(folder / "y.npy", np.arange(len(x)) % 100)
    assert (folder / "x.npy").stat().st_size > 199 * 2**20
    return folder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("storage", "least", "most"), [("disk", 0, 60), ("memory", 190, 10**6)])
def test_a_bank_on_disk_does_not_come_into_memory(bank, tmp_path, storage, least, most):
    """In MiB. Kept in memory it does, which shows that the measure sees it."""
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY, str(bank), storage],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "METAFORGE_CACHE": str(tmp_path)},
    )
    assert least <= int(ran.stdout) <= most
