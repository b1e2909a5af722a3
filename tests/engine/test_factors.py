"""Factors on disk: the same bits, made anew where they are not what was written."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from metaforge import factors, linalg
from metaforge.components import Context
from metaforge.gram import KernelGram
from metaforge.linalg import Factor
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import Tasml

N = 150
DTYPES = (torch.float64, torch.float32)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def _small_banks_pay(monkeypatch) -> None:
    monkeypatch.setattr(factors, "LEAST_TASKS", 100)
    monkeypatch.delenv("METAFORGE_FACTORS", raising=False)


class Bench:
    """Factors of one bank through the cache; counts how many were made."""

    def __init__(self, folder: Path):
        self.folder, self.told, self.made = folder / "factors", [], 0
        self.context = Context(cache_dir=folder, report=self.told.append)

    def kept(self, gamma: float = 1.0, ridge: float = 0.1, dtype=torch.float64, n=N) -> Factor:
        gram = bank(gamma, n)

        def make() -> Factor:
            self.made += 1
            found = linalg.attempt(gram.dense(dtype), ridge, gram.kernel_name)
            assert found is not None
            return found

        return factors.kept(gram, ridge, dtype, self.context, make)

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


def bank(gamma: float = 1.0, n: int = N) -> KernelGram:
    random = torch.Generator().manual_seed(0)
    signatures = torch.randn(n, 3, generator=random, dtype=torch.float64)
    return KernelGram(Gaussian(GaussianOptions(gamma=gamma)), signatures)


def bits(factor: Factor) -> tuple[bytes, float, float]:
    return factor.lower.numpy().tobytes(), factor.jitter, factor.condition


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_kept_has_the_bits_of_what_was_made(bench: Bench, dtype) -> None:
    first, second = (bench.kept(dtype=dtype) for _ in range(2))
    assert bench.made == 1
    assert len(bench.files()) == 1
    assert bits(first) == bits(second)
    right = torch.ones(N, 64, dtype=dtype)
    assert torch.equal(first.solve(right), second.solve(right))
    kept, found = bench.told
    assert "kept the factor" in kept
    assert "from the cache" in found


@pytest.mark.parametrize("solver", ["exact", "float32"])
def test_scores_are_those_without_a_cache(tmp_path, monkeypatch, solver: str) -> None:
    told: list[str] = []
    context = Context(cache_dir=tmp_path, report=told.append)
    weighting = Tasml(TasmlOptions.model_validate({"solver": solver}), context)
    gram, found = bank(), []
    cross = gram.kernel.gram(gram.signatures(), torch.zeros(64, 3, dtype=torch.float64))
    for limit in ("20", "20", "0"):
        monkeypatch.setenv("METAFORGE_FACTORS", limit)
        state = weighting.fit(gram, torch.full((N,), -1))
        found.append((weighting.weights(state, cross, cross[0]), weighting.report(state)))
    files = [line for line in told if "factoring" not in line]
    assert ["from the cache" in line for line in files] == [False, True]
    assert all(torch.equal(found[0][0], alpha) for alpha, _ in found[1:])
    assert all(found[0][1] == report for _, report in found[1:])


def test_what_is_done_to_a_factor_stays_out_of_its_file(bench: Bench) -> None:
    bench.kept()
    before = bench.files()[0].read_bytes()
    bench.kept().lower.zero_()
    assert bench.files()[0].read_bytes() == before


CHANGES: dict[str, dict[str, object]] = {
    "kernel": {"gamma": 1.001},
    "lambda": {"ridge": 0.1 + 1e-12},
    "precision": {"dtype": torch.float32},
    "bank": {"n": N + 1},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_another_matrix_has_another_factor(bench: Bench, change) -> None:
    bench.kept()
    bench.kept(**change)
    assert bench.made == 2
    assert len(bench.files()) == 2
    assert not any("from the cache" in line for line in bench.told)


def test_other_signatures_code_or_threads_have_another_name(monkeypatch) -> None:
    gram = bank()
    names = {factors.key(gram, 0.1, torch.float64)}
    gram.signatures()[N // 3, 1] += 1e-15
    names.add(factors.key(gram, 0.1, torch.float64))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    names.add(factors.key(gram, 0.1, torch.float64))
    monkeypatch.setattr(factors.environment, "engine_digest", lambda: "other code")
    names.add(factors.key(gram, 0.1, torch.float64))
    assert len(names) == 4


class Fitted(Gaussian):
    """A kernel with something that no signature, option or name shows."""

    hidden = 0.0

    def gram(self, a: Tensor, b: Tensor) -> Tensor:
        return super().gram(a, b) * (1 - self.hidden)


def test_what_a_kernel_fitted_is_in_the_name() -> None:
    kernel = Fitted(GaussianOptions(gamma=1.0))
    gram = KernelGram(kernel, bank().signatures())
    before = factors.key(gram, 0.1, torch.float64)
    kernel.hidden = 1e-15
    assert factors.key(gram, 0.1, torch.float64) != before


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 8)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def tear(path: Path) -> None:
    """A part that never reached the disk."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64 * 8 * N] = bytes(64 * 8 * N)
    path.write_bytes(data)


def flip(path: Path) -> None:
    """One bit of one number."""
    data = bytearray(path.read_bytes())
    data[4096 + 8 * N * 3 + 17] ^= 1
    path.write_bytes(data)


def garble(path: Path) -> None:
    path.write_bytes(b"\xff" + path.read_bytes()[1:])


def rename(path: Path) -> None:
    """A list in the place of the header."""
    path.write_bytes(b"[]".ljust(4096) + path.read_bytes()[4096:])


def lie(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"tasks": 150', b'"tasks": 151', 1))


@pytest.mark.parametrize("damage", [shorten, lengthen, empty, tear, flip, garble, rename, lie])
def test_a_file_that_is_not_whole_is_made_anew(bench: Bench, damage: Callable[[Path], None]):
    expected = bits(bench.kept())
    damage(bench.files()[0])
    assert bits(bench.kept()) == expected
    assert bench.made == 2
    assert "damaged" in bench.told[1]
    assert bits(bench.kept()) == expected
    assert bench.made == 2  # what was made anew is whole


def test_a_factor_in_the_place_of_another_is_made_anew(bench: Bench) -> None:
    bench.kept(ridge=0.1)
    (first,) = bench.files()
    expected = bits(bench.kept(ridge=0.2))
    (second,) = set(bench.files()) - {first}
    shutil.copy(first, second)
    assert bits(bench.kept(ridge=0.2)) == expected
    assert bench.made == 3


def test_a_factor_that_may_only_be_read_is_used(bench: Bench, monkeypatch) -> None:
    bench.kept()

    def refused(path: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    bench.kept()
    assert bench.made == 1
    assert "from the cache" in bench.told[-1]


def test_parts_of_processes_that_died_are_removed(bench: Bench) -> None:
    bench.kept(ridge=0.1)
    dead, alive = (bench.folder / f".{name}.factor.123.part" for name in "ab")
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer does
        bench.kept(ridge=0.2)
    assert not dead.exists()
    assert alive.exists(), "somebody is writing to it"


def test_a_disk_without_room_keeps_the_older_factors(bench: Bench, monkeypatch) -> None:
    monkeypatch.setenv("METAFORGE_FACTORS", "0.0002")  # one of 184 kB
    bench.kept(ridge=0.1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 10**6))
    bench.kept(ridge=0.2)
    bench.kept(ridge=0.1)
    assert bench.made == 2


def test_a_small_bank_a_device_and_a_switch_keep_none(bench: Bench, monkeypatch) -> None:
    bench.kept(n=99)
    monkeypatch.setenv("METAFORGE_FACTORS", "0")
    bench.kept()
    monkeypatch.setenv("METAFORGE_FACTORS", "0.0001")  # 100 kB, and this one takes 180 kB
    bench.kept()
    assert "METAFORGE_FACTORS allows 0.0001" in bench.told[-1]
    monkeypatch.delenv("METAFORGE_FACTORS")
    bench.context = Context(cache_dir=bench.folder.parent, device="cuda")
    bench.kept()
    assert bench.made == 4
    assert bench.files() == []


def test_older_factors_make_room(bench: Bench, monkeypatch) -> None:
    monkeypatch.setenv("METAFORGE_FACTORS", "0.0005")  # two of 184 kB
    for age, ridge in ((30, 0.1), (20, 0.2)):
        bench.kept(ridge=ridge)
        newest = max(bench.files(), key=lambda path: path.stat().st_mtime)
        os.utime(newest, (newest.stat().st_mtime - age,) * 2)
    bench.kept(ridge=0.1)  # used, and so no longer the oldest
    bench.kept(ridge=0.3)
    assert len(bench.files()) == 2
    bench.kept(ridge=0.1)
    assert bench.made == 3
    bench.kept(ridge=0.2)
    assert bench.made == 4


def test_a_disk_without_room_costs_the_file_alone(bench: Bench, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1, 1, 10**9))
    bench.kept()
    assert bench.files() == []
    assert "1.0 GB are free" in bench.told[0]


def test_a_folder_of_no_use_costs_the_file_alone(tmp_path) -> None:
    (tmp_path / "factors").write_text("a file in the folder's place")
    bench = Bench(tmp_path)
    bench.kept()
    assert "is of no use" in bench.told[0]
    assert "METAFORGE_CACHE" in bench.told[0]


def test_a_write_that_fails_leaves_nothing(bench: Bench, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    bench.kept()
    assert bench.files() == []
    assert "No space left on device" in bench.told[0]


@pytest.mark.parametrize("text", ["yes", "-1", "inf", "nan"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch, text: str) -> None:
    monkeypatch.setenv("METAFORGE_FACTORS", text)
    with pytest.raises(factors.RecipeError, match="METAFORGE_FACTORS"):
        factors.limit()
