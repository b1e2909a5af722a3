"""The cache folder: what is listed, what prune removes, and what it leaves. Torch-free."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metaforge import cache
from metaforge.cli import main
from metaforge.records import whole_file

DAY, SIZES = 86400, (100, 200, 300)
LIVE = "import sys; from metaforge import cache; c = cache.held(__import__('pathlib').Path(\
sys.argv[1])); print(c.__enter__(), flush=True); sys.stdin.read()"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("METAFORGE_CACHE", str(path))
    return path


def add(folder: Path, kind: str, name: str, size: int, days: float) -> Path:
    """A file that was last used some days ago."""
    path = folder / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - days * DAY,) * 2)
    return path


def three(folder: Path) -> list[Path]:
    return [
        add(folder, "metatrain", f"{'a' * 32}.safetensors", 100, 40),
        add(folder, "select", f"{'b' * 32}-20.json", 200, 20),
        add(folder, "features", f"{'c' * 32}.npz", 300, 0),
    ]


def names(paths: list[Path]) -> list[bool]:
    return [path.exists() for path in paths]


def told(capsys) -> dict:
    return json.loads(capsys.readouterr().out)


def test_a_folder_that_is_not_there_is_empty(folder, capsys):
    assert main(["cache", "ls"]) == 0
    assert main(["cache", "prune", "--older-than", "1d"]) == 0
    assert "removed 0 files" in capsys.readouterr().out
    assert not folder.exists()


def test_what_is_there_is_told_by_kind(folder, capsys):
    three(folder)
    assert main(["cache", "ls"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows[0][:4] == ["metatrain", "1", "100", "B"]
    assert rows[-1] == ["together", "3", "600", "B", "0s", "ago"]
    assert main(["cache", "ls", "--json"]) == 0
    assert [entry["size"] for entry in told(capsys)["files"]] == [100, 200, 300]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ((), [True, True, True]),
        (("--older-than", "30d"), [False, True, True]),
        (("--older-than", "1w"), [False, False, True]),
        (("--keep", "500B"), [False, True, True]),
        (("--keep", "0.3 kB"), [False, False, True]),
        (("--older-than", "30d", "--keep", "299b"), [False, False, False]),
    ],
)
def test_prune_removes_the_longest_unused(folder, words, left, capsys):
    paths = three(folder)
    assert main(["cache", "prune", *words, "--json"]) == 0
    found = told(capsys)
    assert names(paths) == left
    assert found["freed"] == sum(
        s for s, kept in zip((100, 200, 300), left, strict=True) if not kept
    )
    assert found["left"] == 600 - found["freed"]


def test_what_is_used_is_no_longer_the_oldest(folder):
    oldest, older, _ = three(folder)
    with cache.held(oldest) as there:
        assert there
    cache.prune(folder, keep=400)
    assert oldest.exists()
    assert not older.exists()


def test_folders_of_images_are_pruned_file_by_file(folder):
    index = add(folder, f"images/{'a' * 32}", "index.json", 10, 40)
    images = add(folder, f"images/{'a' * 32}", "X.npy", 100, 40)
    other = add(folder, f"images/{'a' * 32}", "mine.npy", 100, 40)
    dead = add(folder, f"images/{'b' * 32}", ".X.npy.99-0a.part", 50, 40)
    assert cache.prune(folder, older_than=DAY).freed == 160
    assert names([index, images, other, dead]) == [False, False, True, False]


def test_what_is_not_ours_is_never_removed(folder, capsys):
    others = [
        add(folder, "metatrain", "thesis.safetensors", 10, 999),
        add(folder, "pictures", f"{'d' * 32}.npz", 10, 999),
        add(folder, "features", f"{'e' * 31}.npz", 10, 999),
    ]
    elsewhere = add(folder.parent, "elsewhere", "file", 10, 999)
    link = folder / "features" / f"{'f' * 32}.npz"
    link.symlink_to(elsewhere)
    assert main(["cache", "prune", "--older-than", "0s", "--keep", "0B"]) == 0
    assert all(names([*others, elsewhere, link]))
    main(["cache", "ls"])
    assert "not known here, which prune leaves" in capsys.readouterr().out


def test_what_a_running_process_uses_stays_until_it_dies(folder, capsys):
    path, *_ = three(folder)
    user = subprocess.Popen(
        [sys.executable, "-c", LIVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert user.stdout is not None
    assert user.stdout.readline() == b"True\n"
    cache.prune(folder, older_than=0)
    assert path.exists()
    main(["cache", "prune", "--keep", "0B"])
    assert f"in use, and left: {path}" in capsys.readouterr().out
    user.kill()
    user.communicate()
    assert cache.prune(folder, keep=0).removed == [
        cache.Entry("metatrain", path, 100, pytest.approx(0, abs=1e12))
    ]
    assert not path.exists()


def test_a_file_that_prune_removes_meanwhile_is_not_there(folder):
    """Who looks while prune holds the file waits, and then finds none."""
    path, *_ = three(folder)
    with path.open("rb") as pruning:
        fcntl.flock(pruning, fcntl.LOCK_EX)
        user = subprocess.Popen(
            [sys.executable, "-c", LIVE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        time.sleep(0.5)
        path.unlink()
    assert user.communicate(b"")[0] == b"False\n"


def test_parts_of_the_dead_are_removed_and_of_the_living_not(folder):
    path, *_ = three(folder)
    dead = add(folder, "metatrain", f".{path.name}.99-0a.part", 50, 0)
    with whole_file(path) as file:
        file.write(b"new")
        assert cache.prune(folder).freed == 50
    assert not dead.exists()
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("words", [("--keep", "10"), ("--keep", "GB"), ("--older-than", "-1d")])
def test_amounts_that_are_none_are_refused(folder, words, capsys):
    paths = three(folder)
    assert main(["cache", "prune", *words]) == 2
    assert "expected such as" in capsys.readouterr().err
    assert all(names(paths))


def test_a_file_that_cannot_be_removed_is_told(folder, monkeypatch, capsys):
    paths = three(folder)
    unlink = Path.unlink

    def refused(path: Path, **options) -> None:
        if path == paths[1]:
            raise OSError(1, "Operation not permitted")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    assert main(["cache", "prune", "--keep", "0B"]) == 3
    assert "cannot be removed: Operation not permitted" in capsys.readouterr().err
    assert names(paths) == [False, True, False]
