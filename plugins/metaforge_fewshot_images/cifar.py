"""CIFAR-FS and FC100: which layout of CIFAR-100's images is there. Torch-free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from metaforge_fewshot_images.cifar100 import ARCHIVE, FOLDER, FORM, from_archive, from_folder
from metaforge_fewshot_images.cifar_names import SUPERCLASS_OF, SUPERCLASSES, split_of
from metaforge_fewshot_images.content import Content, Counts
from metaforge_fewshot_images.image_folders import from_folder as from_images
from metaforge_fewshot_images.options import CifarOptions
from metaforge_fewshot_images.split_pickles import files_of, from_files

#: What each data set has.
COUNTS = {
    "cifar_fs": Counts({"train": 64, "val": 16, "test": 20}, each=600),
    "fc100": Counts({"train": 60, "val": 20, "test": 20}, each=600),
}
#: Folders that the pickles and the images are looked for in, and the pickles' names.
_FOLDERS = {"cifar_fs": (".", "CIFAR-FS"), "fc100": (".", "FC100")}
_PICKLES = {"cifar_fs": ("CIFAR_FS_{}.pickle",), "fc100": ("FC100_{}.pickle",)}
_IMAGES = ("cifarfs/processed", "cifarfs/cifar100/data", "cifar100/data", ".")


def find(options: CifarOptions, unpack: bool = True) -> Content | None:
    """What is there, or None where nothing is. Without ``unpack`` an archive is looked at from
    outside."""
    found = _layout(options, unpack)
    if found is None or found.problems:
        return found
    return replace(found, lacks=COUNTS[options.NAME].lacking(found))


def _layout(options: CifarOptions, unpack: bool) -> Content | None:
    path, name = options.path, options.NAME
    if path.is_file():
        return from_archive(path, name, unpack)
    for folder in (path / FOLDER, path):
        if any((folder / part).is_file() for part in ("train", "test", "meta")):
            return from_folder(folder, name)
    if (path / ARCHIVE).is_file():
        return from_archive(path / ARCHIVE, name, unpack)
    folders = [path / folder for folder in _FOLDERS[name]]
    if pickles := files_of(folders, _PICKLES[name]):
        return from_files(pickles, f"{name}'s pickles")
    known = split_of(name)
    for folder in (path / inner for inner in _IMAGES):
        if any((folder / word).is_dir() for word in ("train", *known)):
            return _grouped(from_images(folder, FORM, known))
    return None


def _grouped(found: Content) -> Content:
    """With the superclasses of its classes."""
    if found.problems:
        return found
    names = list(SUPERCLASSES)
    groups = np.array([names.index(SUPERCLASS_OF[label]) for label in found.class_names])
    return replace(found, groups=groups, group_names=tuple(names))
