"""Omniglot's PNG files, in folders or in the two archives. Torch-free."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from metaforge.components import Context
from metaforge.image_files import image_blocks
from metaforge.image_form import ImageForm
from metaforge.image_listing import list_images
from metaforge_fewshot_images.blobs import Blobs
from metaforge_fewshot_images.content import Content, few, identity_of, nothing, numbered

#: Lake's two sets of alphabets, and the folders and archives that have them.
SETS = ("images_background", "images_evaluation")

#: Bytes of a file of the archives, which have some hundred.
_MOST = 1 << 24
_FILE = re.compile(r"\d+_(\d+)\.png", re.IGNORECASE)
_Blocks = Callable[[Context], Iterator[np.ndarray]]


class Found(NamedTuple):
    """Images as they are, yet without a split; ``lake`` [C] is 0 for background and 1 for
    evaluation; ``vinyals`` [C] the position of the split, where the files tell it."""

    content: Content
    lake: np.ndarray
    vinyals: np.ndarray | None = None


class _Image(NamedTuple):
    """Sorts by class and drawer; ``part`` is the position of its set in ``SETS``."""

    label: str
    drawer: int
    part: int
    file: str


def from_folders(root: Path, size: int, invert: bool) -> Found:
    """``images_background`` and ``images_evaluation`` in ``root``."""
    places = tuple(root / name for name in SETS)
    listings = [list_images(place, groups=True) for place in places]
    problems = [line for listing in listings for line in listing.problems]
    files = [
        (str(label), part, file)
        for part, listing in enumerate(listings)
        for file, label in zip(listing.files, listing.classes, strict=True)
    ]
    form = ImageForm(1, size, size)

    def blocks(images: Sequence[_Image]) -> _Blocks:
        names = [f"{SETS[image.part]}/{image.file}" for image in images]
        return lambda context: _inked(image_blocks(root, names, form, context), invert)

    stats = [(listing.files, listing.stats) for listing in listings]
    identity = (str(root.resolve()), form, invert, *stats)
    return _found("Omniglot's folders", places, files, problems, form, blocks, identity)


def from_archives(root: Path, size: int, invert: bool) -> Found:
    """``images_background.zip`` and ``images_evaluation.zip`` in ``root``, read where they are."""
    paths = tuple(root / f"{name}.zip" for name in SETS)
    files: list[tuple[str, int, str]] = []
    problems: list[str] = []
    for part, path in enumerate(paths):
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name for name in archive.namelist() if name.lower().endswith(".png")]
        except FileNotFoundError:
            problems.append(f"{path}: no such file; Omniglot is both archives")
            continue
        except (zipfile.BadZipFile, OSError, RuntimeError) as error:
            problems.append(f"{path} is no whole archive ({error}); get it again")
            continue
        files += [
            ("/".join(name.split("/")[-3:-1]), part, name)
            for name in names
            if not name.startswith("__MACOSX")
        ]
    form = ImageForm(1, size, size)

    def blocks(images: Sequence[_Image]) -> _Blocks:
        return lambda context: _inked(_members(paths, images, form, context), invert)

    identity = (*identity_of(path for path in paths if path.exists()), form, invert)
    return _found("Omniglot's archives", paths, files, problems, form, blocks, identity)


def unusable(layout: str, places: Sequence[Path], problems: Sequence[str]) -> Found:
    return Found(nothing(layout, places, problems), np.zeros(0, np.int64))


def _members(
    paths: Sequence[Path], images: Sequence[_Image], form: ImageForm, context: Context
) -> Iterator[np.ndarray]:
    """The images of the archives, whose own sums are checked as they are read."""
    with ExitStack() as stack:
        archives = [stack.enter_context(zipfile.ZipFile(path)) for path in paths]
        by_name = {f"{SETS[image.part]}.zip/{image.file}": image for image in images}

        def read(name: str) -> bytes:
            image = by_name[name]
            try:
                size = archives[image.part].getinfo(image.file).file_size
                if size > _MOST:
                    raise OSError(0, f"it claims {size:,} bytes, of an image of some hundred")
                return archives[image.part].read(image.file)
            except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:
                raise OSError(0, str(error)) from error

        members = cast(Path, Blobs(str(paths[0].parent), read))
        yield from image_blocks(members, list(by_name), form, context)


def _inked(blocks: Iterator[np.ndarray], invert: bool) -> Iterator[np.ndarray]:
    """The files have black ink on white paper."""
    return (255 - block for block in blocks) if invert else blocks


def _found(
    layout: str,
    places: Sequence[Path],
    files: Sequence[tuple[str, int, str]],
    problems: Sequence[str],
    form: ImageForm,
    blocks: Callable[[Sequence[_Image]], _Blocks],
    identity: tuple[object, ...],
) -> Found:
    """``files`` are class, set and name of each image."""
    drawn = [(label, _drawer(name), part, name) for label, part, name in files]
    images = sorted(_Image(*own) for own in drawn if own[1] and own[0].count("/") == 1)
    problems = [*problems, *_strange(places[0].parent, {own[3] for own in drawn}, images)]
    if problems:
        return unusable(layout, places, problems)
    labels, of_row = numbered([image.label for image in images])
    lake = np.zeros(len(labels), dtype=np.int64)
    lake[of_row] = [image.part for image in images]
    alphabets, groups = numbered([label.split("/")[0] for label in labels])
    content = Content(
        layout=layout,
        places=tuple(places),
        form=form,
        class_names=labels,
        of_row=of_row,
        split=np.full(len(labels), -1),
        blocks=blocks(images),
        identity=identity,
        groups=groups,
        group_names=alphabets,
        drawers=np.array([image.drawer for image in images]),
        names=[f"{SETS[im.part]}/{'/'.join(im.file.split('/')[-3:])}" for im in images],
        slow=True,
    )
    return Found(content, lake)


def _drawer(name: str) -> int:
    """The drawer's number, which stands behind in a file's name; 0 where it does not."""
    match = _FILE.fullmatch(name.rsplit("/", 1)[-1])
    return int(match[1]) if match else 0


def _strange(root: Path, names: set[str], images: Sequence[_Image]) -> Iterator[str]:
    if odd := sorted(names - {image.file for image in images}):
        yield (
            f"{root}: images that are not ALPHABET/CHARACTER/0001_01.png, with the drawer's number "
            f"behind: {few(map(ascii, odd))}"
        )
    of_part = [{image.label for image in images if image.part == part} for part in range(2)]
    if both := sorted(of_part[0] & of_part[1]):
        yield f"{root}: characters that are in both sets: {few(map(ascii, both))}"
