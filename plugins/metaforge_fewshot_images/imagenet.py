"""miniImageNet and tieredImageNet: which of their layouts is there. Torch-free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from metaforge.image_form import ImageForm
from metaforge.split_names import SPLITS
from metaforge_fewshot_images import png_pickles
from metaforge_fewshot_images.content import Content, Counts, nothing
from metaforge_fewshot_images.image_folders import from_folder, from_tables
from metaforge_fewshot_images.options import MiniImagenetOptions, TieredImagenetOptions
from metaforge_fewshot_images.split_pickles import files_of, from_files

#: Ravi and Larochelle's split.
MINI = Counts({"train": 64, "val": 16, "test": 20}, each=600)
#: Ren et al.'s split.
TIERED = Counts(
    {"train": 351, "val": 97, "test": 160}, {"train": 448_695, "val": 124_261, "test": 206_209}
)
#: Folders that they are looked for in, those of their names first.
_MINI_FOLDERS = ("mini-imagenet", "miniimagenet", "mini_imagenet", "miniImageNet", ".")
_TIERED_FOLDERS = ("tiered-imagenet", "tieredimagenet", "tiered_imagenet", "tieredImageNet", ".")
_MINI_PICKLES = (
    "mini-imagenet-cache-{}.pkl",
    "miniImageNet_category_split_{}.pickle",
)
#: A split's other name in some of the files.
_ALSO = {
    "mini-imagenet-cache-val.pkl": "mini-imagenet-cache-validation.pkl",
    "miniImageNet_category_split_train.pickle": (
        "miniImageNet_category_split_train_phase_train.pickle"
    ),
}


def find_mini(options: MiniImagenetOptions, unpack: bool = True) -> Content | None:
    """What is there, or None where nothing is; pixels are not read."""
    form = ImageForm(3, options.size, options.size)
    folders = [options.path / name for name in _MINI_FOLDERS]
    if paths := files_of(folders, _MINI_PICKLES, _ALSO):
        return _counted(_of_size(from_files(paths, "miniImageNet's pickles"), options), MINI)
    return _counted(_images(folders, form), MINI)


def find_tiered(options: TieredImagenetOptions, unpack: bool = True) -> Content | None:
    """What is there, or None where nothing is; pixels are not read."""
    form = ImageForm(3, options.size, options.size)
    folders = [options.path / name for name in _TIERED_FOLDERS]
    for folder in folders:
        if any((folder / f"{split}_labels.pkl").is_file() for split in SPLITS):
            return _counted(png_pickles.from_files(folder, form), TIERED)
    return _counted(_images(folders, form), TIERED)


def _images(folders: list[Path], form: ImageForm) -> Content | None:
    for folder in folders:
        if (folder / "train.csv").is_file():
            return from_tables(folder, form)
        if (folder / "train").is_dir():
            return from_folder(folder, form)
    return None


def _of_size(found: Content, options: MiniImagenetOptions) -> Content:
    """A pickle's images as they are, which must be what was asked for."""
    form = ImageForm(found.form.channels, options.size, options.size)
    if found.problems or found.form == form:
        return found
    line = (
        f"{found.places[0]}: its images are {found.form.height} x {found.form.width}, and size is "
        f"{options.size}: set size: {found.form.height}"
    )
    return nothing(found.layout, found.places, [line])


def _counted(found: Content | None, counts: Counts) -> Content | None:
    if found is None or found.problems:
        return found
    return replace(found, lacks=counts.lacking(found))
