"""What is wrong with a folder of images, found before any is decoded. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from metaforge.class_pools import Division
from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError, said_by
from metaforge.image_files import Fault, Header, headers, unreadable
from metaforge.image_index import ImageIndex, form_of, known_index, same_files
from metaforge.image_listing import Listing
from metaforge.pools import Pool
from metaforge.sampling_checks import problems
from metaforge.suggest import told
from metaforge.turned import turned_pools
from metaforge_image_folder.layout import divided, listed
from metaforge_image_folder.options import ImageFolderOptions

NAME = "image_folder"
#: Files whose headers the check reads, and bytes of files that it compares: what is more is left to
#: the run.
_FILES, _BYTES = 1000, 32 * 2**20
#: Images in several classes that a message names.
_NAMED = 50


def check(options: ImageFolderOptions, context: Context) -> list[str]:
    """Everything wrong with the folder, its tables and its classes; of few images also with the
    files' headers, and files in two classes. ``context.report`` is told what is left to the run."""
    listing = listed(options)
    lines = [f"{NAME}: {line}" for line in faults(options, listing)]
    lines += [f"{NAME}: {line}" for line in _file_faults(options, listing.of_classes(), context)]
    return lines


def faults(options: ImageFolderOptions, listing: Listing) -> list[str]:
    """What is wrong, as far as no image is opened."""
    found = list(listing.problems)
    classed = listing.of_classes()
    if listing.files and not classed.files and not found:
        found.append(
            f"{listing.root}: its images lie in no folders of classes; expected CLASS/*.png, or "
            "train/CLASS/*.png"
        )
    if not classed.files:
        return found
    try:
        division = divided(options, classed)
    except DataError as error:
        return [*found, str(error)]
    return found + problems(task_pools(options, classed, division), options.sizes())


def task_pools(
    options: ImageFolderOptions, listing: Listing, division: Division
) -> Mapping[str, Sequence[Pool]]:
    """What tasks are drawn from, with classes turned if asked for."""
    pools = division.pools(options.within)
    return turned_pools(pools, len(listing.files), options.augment.rotations)


def _file_faults(options: ImageFolderOptions, listing: Listing, context: Context) -> list[str]:
    """What the files' headers and contents show, where there are few or all is known."""
    if index := known_index(listing, options.wanted, context):
        return twin_faults(options, listing, index.twins)
    if len(listing.files) > _FILES or sum(size for size, _ in listing.stats) > _BYTES:
        context.report(
            f"{NAME}: the {len(listing.files):,} images of {listing.root} are not opened here: "
            "whether all of them can be read, and none is in two classes, the run will say"
        )
        return []
    faulty = [each for each in _headers(listing) if isinstance(each, Fault)]
    lines = [message] if (message := unreadable(listing.root, faulty)) else []
    with suppress(DataError):  # a file that cannot be opened, which is among these
        lines += twin_faults(options, listing, same_files(listing, context))
    return lines


def twin_faults(
    options: ImageFolderOptions, listing: Listing, twins: Sequence[Sequence[str]]
) -> list[str]:
    """Files of the same content in several classes, if they are not to be kept: one message."""
    class_of = dict(zip(listing.files, listing.classes, strict=True))
    across = [some for some in twins if len({class_of[file] for file in some}) > 1]
    if not across or options.duplicates == "keep":
        return []
    lines = [" = ".join(map(told, some)) for some in across[:_NAMED]]
    lines += [f"and {len(across) - _NAMED:,} more"] if len(across) > _NAMED else []
    first = (
        f"{listing.root}: {len(across):,} images are in several classes, byte for byte; leave each "
        "in one, or set duplicates: keep:"
    )
    return ["\n  ".join([first, *lines])]


def facts(options: ImageFolderOptions, context: Context) -> DataFacts:
    """Class names; the shape of an image where it is asked for, known, or told by few headers.
    What a backbone makes of it is not known here."""
    listing = listed(options)
    with said_by(NAME):
        if listing.problems:
            raise DataError("\n".join(listing.problems))
        pools = task_pools(options, listing, divided(options, listing))
    names = {
        split: frozenset(name for pool in some for name in pool.class_names)
        for split, some in pools.items()
    }
    shape = _shape(options, listing, known_index(listing, options.wanted, context), context)
    width = None
    if options.backbone is None and shape is not None:
        width = shape[0] * shape[1] * shape[2]
    return DataFacts(width=width, classes=names, shape=shape if options.sees_images else None)


def _shape(
    options: ImageFolderOptions, listing: Listing, index: ImageIndex | None, context: Context
) -> tuple[int, int, int] | None:
    if index is not None:
        return index.form.shape
    if None not in options.wanted:
        return form_of(listing, options.wanted, context).shape
    if len(listing.files) > _FILES:
        return None
    silent = Context()  # what becomes of the size is the run's to tell
    return form_of(listing, options.wanted, silent, _headers(listing)).shape


@lru_cache(maxsize=4)
def _headers(listing: Listing) -> list[Header | Fault]:
    return headers(listing.root, listing.files, Context())
