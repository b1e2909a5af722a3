"""What a folder of images holds: classes, groups, splits; every fault."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metaforge.image_listing import list_images


def make(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return root


def test_a_folder_a_class(tmp_path):
    found = list_images(make(tmp_path, "dog/2.PNG", "cat/1.jpeg", "cat/0.png"))
    assert found.files == ("cat/0.png", "cat/1.jpeg", "dog/2.PNG")
    assert found.classes == ("cat", "cat", "dog")
    assert found.splits is found.groups is None
    assert not found.problems + found.remarks
    assert [size for size, _ in found.stats] == [1, 1, 1]


def test_images_alone_have_no_classes(tmp_path):
    found = list_images(make(tmp_path, "1.png", "0.png"))
    assert found.files == ("0.png", "1.png")
    assert found.classes == (None, None)
    assert not found.problems


def test_splits_by_any_of_their_names(tmp_path):
    found = list_images(make(tmp_path, "Train/a/0.png", "valid/b/0.png", "testing/c/0.png"))
    assert found.splits == ("train", "test", "val")
    assert found.classes == ("a", "c", "b")
    assert not found.problems


def test_a_class_may_be_called_train(tmp_path):
    found = list_images(make(tmp_path, "train/0.png", "car/0.png"))
    assert found.splits is None
    assert found.classes == ("car", "train")
    assert not found.problems


def test_groups(tmp_path):
    found = list_images(make(tmp_path, "test/greek/a/0.png", "train/latin/a/0.png"), groups=True)
    assert found.classes == ("greek/a", "latin/a")
    assert found.groups == ("greek", "latin")
    assert found.splits == ("test", "train")
    assert not found.problems


def test_deeper_images_are_of_their_class_and_told(tmp_path):
    found = list_images(make(tmp_path, "greek/a/0.png", "latin/b/0.png"))
    assert found.classes == ("greek", "latin")
    (line,) = found.remarks
    assert "greek/a, latin/b" in line
    assert "ask for groups" in line


def test_what_is_left_behind_is_passed_over(tmp_path):
    make(tmp_path, "a/0.png", "a/.hidden.png", "a/._0.png", ".git/x.png", "a/Thumbs.db")
    found = list_images(make(tmp_path, "__MACOSX/a/0.png", "a/desktop.ini", "__MACOSX/b.txt"))
    assert found.files == ("a/0.png",)
    assert not found.problems + found.remarks


def test_other_files_are_told(tmp_path):
    found = list_images(make(tmp_path, "a/0.png", "labels.csv", "a/notes.txt"))
    assert found.files == ("a/0.png",)
    assert not found.problems
    (line,) = found.remarks
    assert "2: a/notes.txt, labels.csv" in line


def test_links_are_followed(tmp_path):
    make(tmp_path / "elsewhere", "dogs/0.png", "1.png")
    root = make(tmp_path / "root", "cat/0.png")
    (root / "dog").symlink_to(tmp_path / "elsewhere" / "dogs", target_is_directory=True)
    (root / "cat" / "1.png").symlink_to(tmp_path / "elsewhere" / "1.png")
    found = list_images(root)
    assert found.files == ("cat/0.png", "cat/1.png", "dog/0.png")
    assert not found.problems


def test_links_that_lead_nowhere_or_back_are_faults(tmp_path):
    make(tmp_path, "a/0.png")
    (tmp_path / "a" / "lost.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "a" / "self.png").symlink_to(tmp_path / "a" / "self.png")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    found = list_images(tmp_path)
    assert found.files == ("a/0.png",)
    assert found.problems == (
        f"{tmp_path}: a/lost.png: a link that leads nowhere; mend or remove it",
        f"{tmp_path}: a/self.png: a link that leads to itself; remove it",
        f"{tmp_path}: a/up: a link back to a folder it lies in; remove it",
    )


def test_faults_of_files(tmp_path):
    make(tmp_path, "a/0.png")
    (tmp_path / "a" / "empty.png").touch()
    os.mkfifo(tmp_path / "a" / "pipe.png")
    found = list_images(tmp_path)
    assert found.files == ("a/0.png",)
    assert "a/empty.png: is empty (0 bytes)" in found.problems[0]
    assert "a/pipe.png: is no regular file" in found.problems[1]


def test_a_name_that_is_not_utf8_is_a_fault(tmp_path):
    make(tmp_path, "a/0.png")
    try:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff.png"))).write_bytes(b"x")
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    (line,) = list_images(tmp_path).problems
    assert "not UTF-8" in line
    line.encode()


@pytest.mark.parametrize("name", ["größe", "猫", "two words", "line\nbreak"])
def test_odd_names_are_classes(tmp_path, name):
    found = list_images(make(tmp_path, f"{name}/{name}.png"))
    assert found.classes == (name,)
    assert not found.problems


def test_one_name_spelled_in_two_ways_is_a_fault(tmp_path):
    found = list_images(make(tmp_path, "caf\u00e9/0.png", "cafe\u0301/1.png"))
    assert "'caf\\xe9' and 'cafe\\u0301'" in found.problems[0] or (
        "'cafe\\u0301' and 'caf\\xe9'" in found.problems[0]
    )
    assert set(found.classes) == {"caf\u00e9"}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a/0.png", "1.png"], "images in no folder of a class, 1: 1.png; expected CLASS/IMAGE"),
        (["train/a/0.png", "test/1.png"], "1: test/1.png; expected SPLIT/CLASS/IMAGE"),
        (["train/a/0.png", "2.png"], "1: 2.png; expected SPLIT/CLASS/IMAGE"),
        (["train/a/0.png", "val/b/0.png", "c/0.png"], "(train, val) beside 1: c; move those"),
        (["val/a/0.png", "valid/b/0.png"], "val and valid name one split"),
        (["a/0.txt"], "folders of classes without an image, 1: a"),
        (["a/0.png", "b/c/0.txt"], "folders of classes without an image, 1: b"),
    ],
)
def test_faults_of_the_order(tmp_path, paths, expected):
    (line,) = [
        line
        for line in list_images(make(tmp_path, *paths)).problems
        if "no image in it" not in line
    ]
    assert expected in line


def test_groups_without_classes_are_a_fault(tmp_path):
    (line,) = list_images(make(tmp_path, "a/0.png", "b/c/0.png"), groups=True).problems
    assert "1: a/0.png; expected GROUP/CLASS/IMAGE" in line


def test_no_images(tmp_path):
    (line,) = list_images(tmp_path).problems
    assert "no image in it; images end in .avif, .bmp" in line
    (line,) = list_images(tmp_path / "none").problems
    assert "no such folder; expected" in line
    (line,) = list_images(make(tmp_path, "a.png") / "a.png").problems
    assert "is no folder" in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_folder_that_may_not_be_read_is_told(tmp_path):
    make(tmp_path, "a/0.png", "b/0.png")
    (tmp_path / "b").chmod(0)
    try:
        assert "b/: cannot be read (Permission denied)" in "\n".join(list_images(tmp_path).problems)
    finally:
        (tmp_path / "b").chmod(0o700)
