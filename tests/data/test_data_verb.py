"""``metaforge data``: what is there, and downloads by stand-ins of the packages that download."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import yaml

import metaforge
from metaforge.cli import main
from metaforge.errors import DataError
from metaforge_fewshot_images.cifar_names import CLASSES

from ..plugins import leo_embeddings_files
from .benchmark_files import write_caches, write_cifar, write_omniglot_bits, write_omniglot_folders

NAMES = ("omniglot", "cifar_fs", "fc100", "mini_imagenet", "tiered_imagenet")


@pytest.fixture
def cli(capsys, monkeypatch):
    """Call the command line; what it returned and printed."""
    monkeypatch.setenv("COLUMNS", "9999")

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- what is there -------------------------------------------------------------------------------


def test_every_published_data_set_is_listed(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_DATA", str(write_omniglot_bits(tmp_path)))
    code, out, _ = cli("data")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert set(NAMES) < set(rows)
    assert "in part" in rows["omniglot"]
    assert "absent" in rows["fc100"]
    monkeypatch.delenv("METAFORGE_DATA")
    code, out, _ = cli("data")
    assert code == 0
    assert "$METAFORGE_DATA is not set" in out


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_told_with_its_forms_and_licence(cli, name, tmp_path):
    code, out, _ = cli("data", name, f"path={tmp_path / 'data'}")
    assert code == DataError.exit_code
    assert "absent" in out
    for words in ("forms read", "licence", "source", f"metaforge data {name} --download"):
        assert words in out
    assert not (tmp_path / "data").exists()


def test_whole_in_part_and_damaged(cli, tmp_path):
    whole = write_caches(tmp_path / "whole", each=600, side=2)
    code, out, _ = cli("data", "mini_imagenet", f"path={whole}", "size=2")
    assert code == 0
    assert "100 classes (64 train, 16 val, 20 test), 60,000 images" in out
    assert "--download" not in out
    part = write_omniglot_folders(tmp_path / "part")
    code, out, _ = cli("data", "omniglot", f"path={part}")
    assert code == DataError.exit_code
    assert "in part" in out
    assert "images_background has 30 characters, Omniglot has 964" in out
    path = whole / "mini-imagenet-cache-val.pkl"
    path.write_bytes(path.read_bytes()[:-100])
    code, out, _ = cli("data", "mini_imagenet", f"path={whole}", "size=2")
    assert code == DataError.exit_code
    assert "damaged" in out
    assert "it is truncated" in out


def test_a_file_of_features(cli, tmp_path):
    path = tmp_path / "f.npz"
    rows = np.repeat(np.arange(len(CLASSES)), 20)
    X = np.random.default_rng(0).normal(size=(len(rows), 4))
    np.savez(path, X=X, y=np.array(CLASSES)[rows])
    code, out, _ = cli("data", "fc100", f"path={path}")
    assert (code, "features of its images" in out) == (0, True)
    np.savez(path, X=X, y=rows)
    code, out, _ = cli("data", "fc100", f"path={path}")
    assert code == DataError.exit_code
    assert "classes that are not CIFAR-100's: '0', '1'" in out


def test_leo_s_embeddings(cli, tmp_path):
    words = ("data", "leo_embeddings", f"dir={tmp_path}")
    code, out, _ = cli(*words)
    assert (code, "absent" in out) == (DataError.exit_code, True)
    leo_embeddings_files.write(tmp_path)
    code, out, _ = cli(*words)
    assert code == 0
    assert "9 classes, 180 images of 12 features" in out
    path = leo_embeddings_files.folder_of(tmp_path) / "val_embeddings.pkl"
    path.write_bytes(path.read_bytes()[:-9])
    code, out, _ = cli(*words)
    assert (code, "damaged" in out, "it is truncated" in out) == (DataError.exit_code, True, True)
    code, _, err = cli(*words, "--download")
    assert code == DataError.exit_code
    assert "leo_embeddings: nothing downloads it; http://" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "omniglott"], "did you mean 'omniglot'?"),
        (["data", "glyphs"], "'glyphs' is not made of published files; those that are: "),
        (["data", "fc100", "pth=x"], "pth: unknown key; did you mean 'path'?"),
        (["data", "fc100", "path"], "expected key=value"),
        (["data", "--download"], "--download needs the NAME of a data set"),
    ],
)
def test_mistakes_of_the_command(cli, words, message):
    code, _, err = cli(*words)
    assert code == 2
    assert message in err


PROBE = """
import sys
from metaforge.cli import main
code = main(sys.argv[1:])
print("torch" in sys.modules, "torchvision" in sys.modules)
sys.exit(code)
"""


@pytest.mark.parametrize("verb", ["data", "validate"])
def test_looking_imports_no_torch(verb, tmp_path):
    path = write_caches(tmp_path / "data", each=600, side=2)
    data = {"use": "mini_imagenet", "path": str(path), "size": 2}
    recipe = tmp_path / "r.yaml"
    network = {"use": "resnet12"}
    recipe.write_text(yaml.safe_dump({"data": data, "inner": {"use": "r2d2", "network": network}}))
    words = [recipe] if verb == "validate" else ["mini_imagenet", f"path={path}", "size=2"]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, verb, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "False False", done.stderr


# -- downloads -----------------------------------------------------------------------------------


@pytest.fixture
def learn2learn(monkeypatch, tmp_path):
    """Stands in for its function that fetches a file: copies one of the same name."""
    source = write_caches(tmp_path / "offered", each=600, side=2)
    for path in source.glob("*-val.pkl"):
        path.rename(path.with_name("mini-imagenet-cache-validation.pkl"))
    state = SimpleNamespace(source=source, fetched=[], fails_at=None)

    def download_file(url: str, destination: str) -> None:
        name = url.rsplit("/", 1)[-1]
        state.fetched.append(name)
        data = (source / name).read_bytes()
        if len(state.fetched) == state.fails_at:
            Path(destination).write_bytes(data[: len(data) // 2])
            raise ConnectionError("the line\nwas cut")
        Path(destination).write_bytes(data)

    utils = ModuleType("learn2learn.data.utils")
    utils.download_file = download_file
    for name in ("learn2learn", "learn2learn.data"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "learn2learn.data.utils", utils)
    return state


def test_a_download_is_there_once_it_is_whole(cli, learn2learn, tmp_path):
    folder = tmp_path / "new" / "data"
    words = ("data", "mini_imagenet", f"path={folder}", "size=2")
    code, out, err = cli(*words, "--download")
    assert code == 0, err
    assert "whole" in out
    assert err.count("downloaded") == 3
    names = [f"mini-imagenet-cache-{split}.pkl" for split in ("test", "train", "validation")]
    assert listed(folder) == names
    source = metaforge.create("dataset", "mini_imagenet", path=folder, size=2)
    assert source.summary()["train"] == "64 classes"
    # a second time, nothing is fetched
    fetched = len(learn2learn.fetched)
    assert cli(*words, "--download")[0] == 0
    assert len(learn2learn.fetched) == fetched


def test_a_download_that_fails_leaves_nothing(cli, learn2learn, tmp_path):
    learn2learn.fails_at = 2
    folder = tmp_path / "data"
    code, _, err = cli("data", "mini_imagenet", f"path={folder}", "size=2", "--download")
    assert code == DataError.exit_code
    assert (
        "mini_imagenet: the download failed, nothing is kept: ConnectionError: the line was" in err
    )
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    learn2learn.fails_at = 4
    cli("data", "mini_imagenet", f"path={folder}", "size=2", "--download")
    assert listed(folder) == ["mine.txt"]


@pytest.mark.parametrize("damage", ["cut", "fewer"])
def test_a_download_that_is_not_whole_is_not_kept(cli, learn2learn, tmp_path, damage):
    path = learn2learn.source / "mini-imagenet-cache-train.pkl"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-1000])
    else:
        write_caches(tmp_path / "fewer", each=3, side=2)
        path.write_bytes((tmp_path / "fewer" / path.name).read_bytes())
    folder = tmp_path / "data"
    code, _, err = cli("data", "mini_imagenet", f"path={folder}", "size=2", "--download")
    assert code == DataError.exit_code
    assert "what was downloaded is not whole, and is not kept" in err
    assert ("truncated" if damage == "cut" else "n00000000 3") in err
    assert not folder.exists()


def test_files_in_the_way_are_not_overwritten(cli, learn2learn, tmp_path):
    path = tmp_path / "mini-imagenet-cache-test.pkl"
    path.write_bytes(b"mine")
    code, _, err = cli("data", "mini_imagenet", f"path={tmp_path}", "size=2", "--download")
    assert code == DataError.exit_code
    assert "mini-imagenet-cache-test.pkl of" in err
    assert "move it away" in err
    assert path.read_bytes() == b"mine"
    assert not list(tmp_path.glob(".mini*"))


def test_nothing_is_downloaded_unasked(cli, learn2learn, tmp_path):
    cli("data")
    cli("data", "mini_imagenet", f"path={tmp_path / 'data'}")
    with pytest.raises(DataError, match="place there one of"):
        metaforge.create("dataset", "mini_imagenet", path=tmp_path / "data")
    assert learn2learn.fetched == []


@pytest.fixture
def torchvision(monkeypatch, tmp_path_factory):
    """Stands in for its data sets, which write their files where they are told to."""
    cifar = write_cifar(tmp_path_factory.mktemp("offered")) / "cifar-100-python"

    def CIFAR100(root, train, download):
        assert download
        folder = Path(root, "cifar-100-python")
        folder.mkdir()
        for path in cifar.iterdir():
            os.link(path, folder / path.name)
        Path(root, "cifar-100-python.tar.gz").write_bytes(b"the archive")

    def Omniglot(root, background, download):
        assert download
        write_omniglot_folders(Path(root, "omniglot-py"))

    datasets = ModuleType("torchvision.datasets")
    datasets.CIFAR100, datasets.Omniglot = CIFAR100, Omniglot
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)


def test_torchvision_downloads_cifar_and_omniglot(cli, torchvision, tmp_path):
    code, out, err = cli("data", "fc100", f"path={tmp_path / 'c'}", "--download")
    assert code == 0, err
    assert "100 classes (60 train, 20 val, 20 test), 60,000 images" in out
    names = ("", "/meta", "/test", "/train")
    assert listed(tmp_path / "c") == [f"cifar-100-python{name}" for name in names]
    code, _, err = cli("data", "omniglot", f"path={tmp_path / 'o'}", "--download")
    assert code == DataError.exit_code
    assert "images_background has 30 characters, Omniglot has 964" in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("cifar_fs", "torchvision.datasets", "pip install 'metaforge[torchvision]'"),
        ("tiered_imagenet", "learn2learn.data.utils", "pip install --no-deps"),
    ],
)
def test_without_the_package_that_downloads(cli, monkeypatch, tmp_path, name, module, words):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    code, _, err = cli("data", name, f"path={tmp_path / 'data'}", "--download")
    assert code == DataError.exit_code
    assert words in err
    assert "place the files yourself" in err
    assert not (tmp_path / "data").exists()


def test_a_folder_that_cannot_be_written(cli, learn2learn, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli("data", "mini_imagenet", f"path={tmp_path / 'file/data'}", "--download")
    assert code == DataError.exit_code
    assert "cannot be written (Not a directory): give another path" in err
