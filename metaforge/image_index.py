"""The images of a folder, read once: kept in the cache folder as an npy file that can be mapped.

An index is named by what went into it: the place of the folder, the paths, sizes and times of
change of its files, the form that was asked for, and the decoder. So a folder that has changed
gets another index. Torch-free.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import PIL
from pydantic import BaseModel, ConfigDict

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_files import Fault, Header, form_of_headers, headers, image_blocks
from metaforge.image_form import ImageForm, Wanted
from metaforge.image_listing import Listing
from metaforge.kept_images import write_images
from metaforge.records import read_json, write_json
from metaforge.seals import sealed
from metaforge.storage import numbers_of

#: Pixels along the longer side of images whose size is not asked for, at most: what the
#: convolutional networks of few-shot learning are made for.
LONGEST = 84
#: Part of an index's name: raised whenever the same files would come to other bytes.
_MAKING = 1


@dataclass(frozen=True)
class ImageIndex:
    """An npy file of bytes [n, c, h, w] with the images of a listing in its order.

    digest  of those bytes
    twins   files of the same content, some at a time
    """

    path: Path
    form: ImageForm
    digest: str
    twins: tuple[tuple[str, ...], ...]


def index_images(listing: Listing, wanted: Wanted, context: Context) -> ImageIndex:
    """The index of a listing without problems, made now if it is not there.

    Raises one ``DataError`` with all files that cannot be read, or for a cache folder that cannot
    be written or has no room.
    """
    if found := known_index(listing, wanted, context):
        return found
    folder = _folder(listing, wanted, context)
    form = form_of(listing, wanted, context)
    blocks = image_blocks(listing.root, listing.files, form, context)
    digest = write_images(folder / "X.npy", (len(listing.files), *form.shape), blocks)
    twins = same_files(listing, context)
    note = {"form": asdict(form), "digest": digest, "twins": twins}
    write_json(folder / "index.json", sealed(note))
    return ImageIndex(folder / "X.npy", form, digest, tuple(map(tuple, twins)))


def known_index(listing: Listing, wanted: Wanted, context: Context) -> ImageIndex | None:
    """The index of a listing where there is a whole one."""
    folder = _folder(listing, wanted, context)
    try:
        note = read_json(folder / "index.json", _Note)
        form = ImageForm(**note["form"])
        header, _ = numbers_of(folder / "X.npy")
    except DataError:
        return None
    if header.shape != (len(listing.files), *form.shape) or header.dtype != np.uint8:
        return None
    return ImageIndex(folder / "X.npy", form, note["digest"], tuple(map(tuple, note["twins"])))


def form_of(
    listing: Listing,
    wanted: Wanted,
    context: Context,
    found: Sequence[Header | Fault] | None = None,
) -> ImageForm:
    """The form that is asked for; ``found`` are the files' headers, if they are known.

    A size that is not asked for is the most common one, shrunk to at most 84 pixels along its
    longer side, which ``context.report`` is told.
    """
    if wanted.channels is not None and wanted.size is not None:
        return ImageForm(wanted.channels, *wanted.size)
    if found is None:
        found = headers(listing.root, listing.files, context)
    common = form_of_headers(listing.root, found)
    height, width = wanted.size or (common.height, common.width)
    longer = max(height, width)
    if wanted.size is None and longer > LONGEST:
        shrunk = [max(1, round(side * LONGEST / longer)) for side in (height, width)]
        context.report(
            f"images of {height} x {width} are shrunk to {shrunk[0]} x {shrunk[1]}: for another "
            "size set size"
        )
        height, width = shrunk
    return ImageForm(wanted.channels or common.channels, height, width)


def same_files(listing: Listing, context: Context) -> list[list[str]]:
    """The files that have the same bytes, some at a time. Only those of one size are read."""
    of_size = defaultdict(list)
    for file, (size, _) in zip(listing.files, listing.stats, strict=True):
        of_size[size].append(file)
    alike = [some for some in of_size.values() if len(some) > 1]
    same = defaultdict(list)
    with context.progress("comparing images", sum(map(len, alike))) as advance:
        for file in (file for some in alike for file in some):
            same[_content(listing.root / file)].append(file)
            advance(1)
    return sorted(some for some in same.values() if len(some) > 1)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror})") from error


class _Form(BaseModel):
    channels: int
    height: int
    width: int


class _Note(BaseModel):
    model_config = ConfigDict(strict=True)

    form: _Form
    digest: str
    twins: list[list[str]]


def _folder(listing: Listing, wanted: Wanted, context: Context) -> Path:
    content = listing.root.resolve(), listing.files, listing.stats
    made_by = _MAKING, PIL.__version__, wanted
    digest = hashlib.blake2b(repr((content, made_by)).encode(), digest_size=16)
    return context.cache_dir / "images" / digest.hexdigest()
