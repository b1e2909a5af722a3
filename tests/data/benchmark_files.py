"""Files in the forms of the published few-shot data sets, small: made by the tests themselves."""

from __future__ import annotations

import io
import pickle
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from metaforge_fewshot_images.cifar_names import CLASSES, SUPERCLASS_OF, SUPERCLASSES, split_of

from ..plugins.leo_embeddings_files import pickled

SPLITS = ("train", "val", "test")

# -- Omniglot ------------------------------------------------------------------------------------

BACKGROUND, EVALUATION = ("Greek", "Latin", "Braille", "Korean", "Hebrew"), ("Angelic", "Keble")
CHARACTERS, DRAWERS, SIDE = 6, 20, 28


def alphabets() -> list[tuple[int, str]]:
    """Set and name of each; those of a set are not in the order of their names."""
    return [(0, name) for name in BACKGROUND] + [(1, name) for name in EVALUATION]


def ink(character: int, drawer: int) -> np.ndarray:
    """[28, 28] of 0 and 1: the character's own pattern, with the drawer's noise."""
    own = np.random.default_rng(character).random((SIDE, SIDE)) < 0.3
    noise = np.random.default_rng([character, drawer]).random((SIDE, SIDE)) < 0.1
    return (own ^ noise).astype(np.uint8)


def omniglot_images() -> dict[str, np.ndarray]:
    """Path, as in the archives, -> ink."""
    found, number = {}, 0
    for part, alphabet in alphabets():
        folder = ("images_background", "images_evaluation")[part]
        for character in range(1, CHARACTERS + 1):
            number += 1
            for drawer in range(1, DRAWERS + 1):
                name = f"{number:04d}_{drawer:02d}.png"
                path = f"{folder}/{alphabet}/character{character:02d}/{name}"
                found[path] = ink(number, drawer)
    return found


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, "PNG")
    return file.getvalue()


def write_omniglot_folders(root: Path) -> Path:
    """One bit a pixel, black ink on white."""
    for name, pixels in omniglot_images().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(255 * (1 - pixels), "1"))
    return root


def write_omniglot_archives(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    images = omniglot_images()
    for part in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(root / f"{part}.zip", "w") as archive:
            archive.writestr("__MACOSX/._x.png", b"no image")
            for name, pixels in images.items():
                if name.startswith(part):
                    archive.writestr(name, png(255 * (1 - pixels), "1"))
    return root


def write_omniglot_bits(root: Path, **changes: Any) -> Path:
    """As the packed file has it; every third character is val, every fourth test."""
    root.mkdir(parents=True, exist_ok=True)
    images = omniglot_images()
    labels = ["/".join(name.split("/")[1:3]) for name in images]
    names = list(dict.fromkeys(labels))
    lake = [int(f"images_evaluation/{name}" in "\n".join(images)) for name in names]
    arrays = {
        "Xbits": np.packbits(np.stack(list(images.values())).reshape(len(images), -1), axis=1),
        "y": np.array([names.index(label) for label in labels], dtype=np.int16),
        "drawer": np.array([int(name[-6:-4]) for name in images], dtype=np.uint8),
        "class_names": np.array(names),
        "class_lake_set": np.array(lake, dtype=np.uint8),
        "class_vinyals_split": np.array(vinyals(len(names)), dtype=np.int8),
    }
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(root / "omniglot28_bits.npz", **kept)
    return root


def vinyals(count: int) -> list[int]:
    return [(0, 1, 2, 0)[number % 4] for number in range(count)]


def write_lists(folder: Path) -> Path:
    """Vinyals' split as text, turned classes too."""
    folder.mkdir()
    labels = list(dict.fromkeys("/".join(name.split("/")[1:3]) for name in omniglot_images()))
    for number, split in enumerate(SPLITS):
        own = [label for label, n in zip(labels, vinyals(len(labels)), strict=True) if n == number]
        lines = [f"{label}/rot{turn:03d}" for label in own for turn in (0, 90, 180, 270)]
        (folder / f"{split}.txt").write_text("\n".join(lines))
    return folder


# -- CIFAR-100 -----------------------------------------------------------------------------------

ROWS = {"train": 50_000, "test": 10_000}


def cifar_part(part: str) -> dict[str, Any]:
    """What CIFAR-100's file holds, but for the images, which are all black but the first 200."""
    rng = np.random.default_rng(len(part))
    fine = rng.permutation(np.arange(ROWS[part]) % len(CLASSES))
    groups = list(SUPERCLASSES)
    coarse = [groups.index(SUPERCLASS_OF[CLASSES[label]]) for label in fine]
    data = np.zeros((ROWS[part], 3072), np.uint8)
    data[:200] = rng.integers(256, size=(200, 3072))
    return {
        "filenames": [f"image_{row}.png" for row in range(ROWS[part])],
        "batch_label": f"{part}ing batch 1 of 1",
        "fine_labels": fine.tolist(),
        "coarse_labels": coarse,
        "data": data,
    }


def write_sparse(path: Path, content: bytes) -> None:
    """A file whose long runs of zeros take no room on the disk."""
    with path.open("wb") as file:
        for first in range(0, len(content), 1 << 20):
            block = content[first : first + (1 << 20)]
            if block.strip(b"\0"):
                file.write(block)
            else:
                file.seek(len(block), 1)
        file.truncate(len(content))


def write_cifar(root: Path, **changes: Any) -> Path:
    """``cifar-100-python``; ``changes`` are of the entries of its train file."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for part in ROWS:
        found = cifar_part(part)
        write_sparse(folder / part, pickled(found | (changes if part == "train" else {})))
    names = {"fine_label_names": list(CLASSES), "coarse_label_names": list(SUPERCLASSES)}
    (folder / "meta").write_bytes(pickled(names))
    return root


def write_cifar_archive(root: Path, folder: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder, "cifar-100-python")
    return root


def write_images(root: Path, files: Mapping[str, np.ndarray]) -> Path:
    for name, pixels in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return root


def coloured(seed: Sequence[int] | int, side: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(side, side, 3), dtype=np.uint8)


def cifar_folders(name: str, by_split: bool, each: int = 3, classes: int = 6) -> dict[str, Any]:
    """Images of some classes of each split."""
    found, taken = {}, dict.fromkeys(SPLITS, 0)
    for label, split in split_of(name).items():
        if taken[split] == classes:
            continue
        taken[split] += 1
        for row in range(each):
            prefix = f"{split}/" if by_split else ""
            found[f"{prefix}{label}/{row}.png"] = coloured([CLASSES.index(label), row], 32)
    return found


# -- a pickle a split ----------------------------------------------------------------------------

COUNTS = {"train": 64, "val": 16, "test": 20}


def split_images(split: str, classes: int, each: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, side, side, 3] and their labels, mixed."""
    rng = np.random.default_rng([SPLITS.index(split), side])
    labels = rng.permutation(np.repeat(np.arange(classes), each))
    return rng.integers(256, size=(len(labels), side, side, 3), dtype=np.uint8), labels


def write_caches(root: Path, each: int = 3, side: int = 84, protocol: int = 4) -> Path:
    """miniImageNet's caches: image_data and class_dict."""
    root.mkdir(parents=True, exist_ok=True)
    for split, classes in COUNTS.items():
        images, labels = split_images(split, classes, each, side)
        rows = {
            f"n{SPLITS.index(split)}{label:07d}": np.flatnonzero(labels == label).tolist()
            for label in range(classes)
        }
        found = {"image_data": images, "class_dict": rows}
        (root / f"mini-imagenet-cache-{split}.pkl").write_bytes(pickle.dumps(found, protocol))
    return root


def write_labelled(
    root: Path, form: str, counts: Mapping[str, int], side: int, named: bool = False
) -> Path:
    """data and labels, as Python 2 wrote them; with names of the classes, or without."""
    root.mkdir(parents=True, exist_ok=True)
    for split, classes in counts.items():
        images, labels = split_images(split, classes, 3, side)
        found: dict[str, Any] = {"data": images, "labels": labels.tolist()}
        if named:
            names = {number: f"{split} thing {number}" for number in range(classes)}
            found |= {"label2catname": names, "catname2label": {v: k for k, v in names.items()}}
        (root / form.format(split)).write_bytes(pickled(found))
    return root


# -- tieredImageNet ------------------------------------------------------------------------------

TIERED = {"train": (4, 3), "val": (2, 3), "test": (3, 2)}  # superclasses, classes of each


def tiered_labels(split: str, each: int = 4) -> dict[str, Any]:
    groups, classes = TIERED[split]
    rng = np.random.default_rng(SPLITS.index(split))
    specific = rng.permutation(np.repeat(np.arange(groups * classes), each))
    return {
        "label_specific": specific,
        "label_general": specific // classes,
        "label_specific_str": [f"{split} kind {n}" for n in range(groups * classes)],
        "label_general_str": [f"{split} family {n}" for n in range(groups)],
    }


def write_tiered(root: Path, npz: bool = False, side: int = 84, **changes: Any) -> Path:
    """Bytes of PNG files in a list of arrays, and the labels; ``changes`` are of train's labels."""
    root.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        labels = tiered_labels(split)
        images = [
            coloured([SPLITS.index(split), n], side) for n in range(len(labels["label_specific"]))
        ]
        if npz:
            np.savez(root / f"{split}_images.npz", images=np.stack(images))
        else:
            held = [np.frombuffer(png(image), np.uint8)[:, None] for image in images]
            (root / f"{split}_images_png.pkl").write_bytes(pickle.dumps(held, 2))
        labels |= changes if split == "train" else {}
        (root / f"{split}_labels.pkl").write_bytes(pickle.dumps(labels, 2))
    return root
