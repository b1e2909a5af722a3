"""A file of a run folder that is cut, flipped or emptied costs no wrong figure, no other file."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metaforge.array_files import Arrays
from metaforge.cached_arrays import cached_array
from metaforge.errors import DamagedFile, DataError
from metaforge.records import load_tensors, read_json
from metaforge.run_files import Record
from tests.torture.harness import SHARE, dice, differing, figures, number, tally

pytestmark = pytest.mark.slow

#: What metaforge writes for others and never reads back, or reads as it may be.
TABLES = {"metrics.csv", "targets.csv"}
FOR_OTHERS = {"recipe.yaml", "log.txt", "report.html", ".lock", *TABLES}
#: What each resumed run writes anew.
ANEW = {"status.json", "results.json", "select.json", "report.html", "log.txt", ".lock"}


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :]


def zero(data: bytes, rng: random.Random) -> bytes:
    """A block that never reached the disk."""
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.randrange(1, 4096))
    return data[:at] + bytes(end - at) + data[end:]


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


HOW: tuple[Callable[[bytes, random.Random], bytes], ...] = (cut, flip, flip, zero, empty)


def files(path: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()
    }


def test_a_finished_run_is_gone_on_with_or_refused_and_nothing_else_is_lost(
    zygote, whole, tmp_path
):
    names = [name for name, data in files(whole.path).items() if data]
    rng = dice("damage")
    for trial in range(number(len(names), 20 * len(names))):
        name, how = names[trial % len(names)], rng.choice(HOW)
        path = tmp_path / "runs" / whole.path.name
        shutil.copytree(whole.path, path)
        before = files(path)
        (path / name).write_bytes(how(before[name], rng))
        ended = zygote.call("run", "--quiet", "--resume", str(path), cwd=tmp_path)
        where = f"trial {trial}: {name}, {how.__name__}: {ended.err}"
        if ended.code == 0:
            found = figures(path)
            if name in TABLES:  # the tracker says in a note that it cannot go on with its table
                found["results"]["notes"] = whole.figures["results"]["notes"]
            others = differing(found, whole.figures)
            assert set(others) <= {name} & FOR_OTHERS, (where, others)
        else:
            assert name.rpartition("/")[2] in ended.told_in_one(), where
            after = files(path)
            kept = set(before) - {name} - ANEW
            assert [other for other in kept if after.get(other) != before[other]] == [], where
        tally["damaged file, resumed", "refused" if ended.code else "same bits"] += 1
        shutil.rmtree(path)


@pytest.mark.parametrize("verb", ["report", "compare"])
def test_a_damaged_run_is_shown_as_it_was_or_refused(zygote, whole, tmp_path, verb):
    path = tmp_path / "runs" / whole.path.name
    words = {
        "report": ("report", "--text", str(path)),
        "compare": ("compare", str(path), str(whole.path), "--json", "--quiet", "--out", "table"),
    }[verb]
    shutil.copytree(whole.path, path)
    expected = zygote.call(*words, cwd=tmp_path)
    assert expected.code == 0, expected.err
    names = ["results.json", "status.json", "targets.jsonl", "resolved.yaml", "env.json"]
    rng = dice("damage", verb)
    for trial in range(number(10, 300)):
        name, how = names[trial % len(names)], rng.choice(HOW)
        data = (whole.path / name).read_bytes()
        (path / name).write_bytes(how(data, rng))
        shutil.rmtree(tmp_path / "table", ignore_errors=True)
        ended = zygote.call(*words, cwd=tmp_path)
        where = f"trial {trial}: {name}, {how.__name__}: {ended.err}"
        if ended.code:
            ended.told_in_one()
        else:
            assert ended.out == expected.out, where
        tally[f"damaged file, {verb}", "refused" if ended.code else "as it was"] += 1
        (path / name).write_bytes(data)


@pytest.mark.parametrize("name", ["theta_hat", "checkpoint"])
def test_every_flipped_byte_of_tensors_is_told_or_harmless(whole, tmp_path, name):
    path = whole.path / "artifacts" / f"{name}.safetensors"
    data, (tensors, said) = path.read_bytes(), load_tensors(path)
    rng = dice("tensors", name)
    for at in range(0, len(data), 1 if SHARE else 11):
        damaged = tmp_path / "x.safetensors"
        damaged.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
        try:
            found, metadata = load_tensors(damaged)
        except DamagedFile:
            tally["flipped byte of tensors", "told"] += 1
            continue
        assert all(found[key].equal(value) for key, value in tensors.items()), at
        if metadata:  # where the entry's name was hit there is none, which its shape tells
            assert {key: metadata[key] for key in said} == said, at
        tally["flipped byte of tensors", "harmless"] += 1


@pytest.mark.parametrize("name", ["results.json", "env.json", "select.json"])
def test_every_flipped_byte_of_json_is_told_or_harmless(whole, tmp_path, name):
    path = whole.path / name
    data, expected = path.read_bytes(), read_json(path, Record)
    rng = dice("json", name)
    for at in range(0, len(data), 1 if SHARE else 11):
        damaged = tmp_path / "x.json"
        damaged.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
        try:
            found = read_json(damaged, Record)
        except DamagedFile:
            tally["flipped byte of JSON", "told"] += 1
            continue
        assert {key: found[key] for key in expected} == expected, at
        tally["flipped byte of JSON", "harmless"] += 1


def test_every_flipped_byte_of_a_cached_array_is_made_anew_or_harmless(tmp_path):
    array, said = np.arange(12, dtype=np.float32).reshape(3, 4), []
    path = tmp_path / "cache" / "features" / "x.npz"

    def read() -> np.ndarray:
        return cached_array(path, array.shape, lambda: array.copy(), said.append)

    read()
    data, rng = path.read_bytes(), dice("npz")
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
        said.clear()
        assert np.array_equal(read(), array), at
        assert read().dtype == array.dtype, at
        tally["flipped byte of a cached array", "made anew" if said else "harmless"] += 1
    assert tally["flipped byte of a cached array", "made anew"] > len(array.tobytes())


def test_every_flipped_byte_of_a_user_s_archive_is_told_or_harmless(tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = tmp_path / "data.npz"
    np.savez(path, X=x)
    data, rng = path.read_bytes(), dice("archive")
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :])
        outcome = "harmless"
        try:
            assert np.array_equal(Arrays(path).get("x", "X"), x), at
        except DataError:
            outcome = "told"
        tally["flipped byte of a user's npz", outcome] += 1
    assert tally["flipped byte of a user's npz", "told"] > len(x.tobytes())


def test_a_file_without_a_seal_is_read_and_its_damage_is_not_seen(whole, tmp_path):
    """The broken specimen of the law above: what a seal is for."""
    from metaforge.seals import opened

    text = opened((whole.path / "env.json").read_text()).text
    path = tmp_path / "env.json"
    path.write_text(text.replace('"threads": 1', '"threads": 7'))
    assert read_json(path, Record)["threads"] == 7
