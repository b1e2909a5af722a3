"""Which images a folder holds, of which class, group and split. No image is opened."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from pathlib import Path

from metaforge.split_names import split_named
from metaforge.suggest import shown, told

#: How the names of images end, in any case.
_ENDINGS = ".png .jpg .jpeg .jpe .jfif .gif .bmp .dib .tif .tiff .webp .ppm .pgm .pbm .pnm .jp2"
ENDINGS = frozenset([*_ENDINGS.split(), ".avif"])
#: What file managers and archivers leave behind; names that begin with a dot are passed over too.
_LEFT_BEHIND = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


@dataclass(frozen=True)
class Listing:
    """The images below ``root``, sorted by their paths.

    files     their paths relative to the root, with ``/``
    classes   of each the class, None where it lies in no folder of a class
    groups    of each the group of its class, where the listing was asked for groups
    splits    of each ``train``, ``val`` or ``test``, where the folders at the top are splits
    stats     of each its size in bytes and its time of change in nanoseconds
    problems  every fault, a line each
    remarks   what is no fault, yet perhaps not what was meant, a line each
    """

    root: Path
    files: tuple[str, ...] = ()
    classes: tuple[str | None, ...] = ()
    groups: tuple[str | None, ...] | None = None
    splits: tuple[str, ...] | None = None
    stats: tuple[tuple[int, int], ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def of_classes(self) -> Listing:
        """The images that have a class."""
        kept = [name is not None for name in self.classes]
        return replace(
            self,
            files=tuple(compress(self.files, kept)),
            classes=tuple(compress(self.classes, kept)),
            groups=None if self.groups is None else tuple(compress(self.groups, kept)),
            splits=None if self.splits is None else tuple(compress(self.splits, kept)),
            stats=tuple(compress(self.stats, kept)),
        )


def list_images(root: Path, *, groups: bool = False) -> Listing:
    """The images of a folder: ``CLASS/*``, or ``SPLIT/CLASS/*`` where all its folders are named
    as splits are (train, training; val, valid, validation, dev; test, testing).

    With ``groups`` each class lies in the folder of its group, ``GROUP/CLASS/*``, and is named
    ``GROUP/CLASS``. Images deeper in a class's folder are of the class. An image is known by how
    its name ends; other files are told. Names of classes are compared, and given, in Unicode's
    composed form (NFC).

    Passed over are hidden files, ``Thumbs.db``, ``desktop.ini`` and ``__MACOSX``. Links to files
    and folders are followed; one that leads nowhere, or back to a folder it lies in, is a fault.
    Faults are also empty files, names that are not UTF-8, folders that cannot be read, folders of
    classes without an image, images beside the folders of classes, two folders whose names are
    one in NFC. A folder of images alone, without folders of classes, is none.
    """
    if not root.is_dir():
        what = "is no folder" if root.exists() else "no such folder"
        advice = "expected a folder of images, CLASS/*.png or train/CLASS/*.png"
        return Listing(root, problems=(f"{root}: {what}; {advice}",))
    found = _Found()
    _walk(root, "", (), found)
    return _arranged(root, found, groups)


@dataclass
class _Found:
    """What a walk came upon; ``folders`` and ``others`` are paths relative to the root."""

    images: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _walk(folder: Path, prefix: str, above: tuple[tuple[int, int], ...], found: _Found) -> None:
    """``above`` are the device and inode of the folders on the way, by which loops are seen."""
    try:
        here = os.stat(folder)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.problems.append(f"{told(prefix or '.')}: cannot be read ({error.strerror})")
        return
    above = (*above, (here.st_dev, here.st_ino))
    for entry in entries:
        if entry.name.startswith(".") or entry.name.lower() in _LEFT_BEHIND:
            continue
        path = prefix + entry.name
        try:
            facts = entry.stat()
        except OSError as error:
            found.problems.append(f"{told(path)}: {_unreachable(error)}")
            continue
        if not stat.S_ISDIR(facts.st_mode):
            _add(path, facts, found)
        elif (facts.st_dev, facts.st_ino) in above:
            found.problems.append(f"{told(path)}: a link back to a folder it lies in; remove it")
        else:
            found.folders.append(path)
            _walk(Path(entry.path), f"{path}/", above, found)


def _unreachable(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "a link that leads nowhere; mend or remove it"
    if error.errno == errno.ELOOP:
        return "a link that leads to itself; remove it"
    return f"cannot be read ({error.strerror})"


def _add(path: str, facts: os.stat_result, found: _Found) -> None:
    if os.path.splitext(path)[1].lower() not in ENDINGS:
        found.others.append(path)
    elif not stat.S_ISREG(facts.st_mode):
        found.problems.append(f"{told(path)}: is no regular file; remove it")
    elif not facts.st_size:
        found.problems.append(f"{told(path)}: is empty (0 bytes); copy it again")
    elif not _is_utf8(path):
        found.problems.append(f"{told(path)}: its name is not UTF-8; rename it")
    else:
        found.images.append((path, (facts.st_size, facts.st_mtime_ns)))


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _arranged(root: Path, found: _Found, groups: bool) -> Listing:
    """The listing of what was found, with what its folders mean."""
    tops = [folder for folder in found.folders if "/" not in folder]
    by_split = bool(tops) and all(split_named(top) for top in tops)
    depth = 2 if groups else 1
    found.images.sort()
    astray = [path for path, _ in found.images if by_split and "/" not in path]
    found.images = [image for image in found.images if image[0] not in astray]
    parts = [path.split("/")[:-1] for path, _ in found.images]
    inner = [folders[1:] for folders in parts] if by_split else parts
    classes = [_nfc("/".join(own[:depth])) if len(own) >= depth else None for own in inner]
    problems = [
        *found.problems,
        *_split_faults(tops, by_split),
        *_misplaced(found, astray, inner, depth + by_split, by_split, groups),
        *_clashes(found.folders, depth + by_split),
    ]
    if not found.images and not found.problems:
        problems.append(f"no image in it; images end in {', '.join(sorted(ENDINGS))}")
    return Listing(
        root=root,
        files=tuple(path for path, _ in found.images),
        classes=tuple(classes),
        groups=tuple(own[0] if len(own) > 1 else None for own in inner) if groups else None,
        splits=tuple(str(split_named(own[0])) for own in parts) if by_split else None,
        stats=tuple(facts for _, facts in found.images),
        problems=tuple(f"{root}: {line}" for line in problems),
        remarks=tuple(f"{root}: {line}" for line in _remarks(found, inner, depth, groups)),
    )


def _split_faults(tops: Sequence[str], by_split: bool) -> list[str]:
    """Split folders that stand beside others, or twice."""
    named = defaultdict(list)
    for top in tops:
        named[split_named(top)].append(top)
    others = named.pop(None, [])
    lines = []
    if not by_split and len(named) > 1:
        lines.append(
            f"folders of splits ({', '.join(chain(*named.values()))}) beside {shown(others)}; "
            "move those into a split, or rename the splits if they are classes"
        )
    if by_split:
        twice = [own for own in named.values() if len(own) > 1]
        lines += [f"{' and '.join(own)} name one split; make them one folder" for own in twice]
    return lines


def _misplaced(
    found: _Found,
    astray: Sequence[str],
    inner: Sequence[Sequence[str]],
    level: int,
    by_split: bool,
    groups: bool,
) -> list[str]:
    """Images above the folders of classes, which are ``level`` deep, and folders without any;
    ``astray`` are those beside folders of splits."""
    paths = [path for path, _ in found.images]
    bare = [path for path, own in zip(paths, inner, strict=True) if len(own) < 1 + groups]
    at_level = [folder for folder in found.folders if folder.count("/") == level - 1]
    lines = []
    if astray or (bare and (by_split or groups or at_level)):
        form = ("SPLIT/" if by_split else "") + ("GROUP/" if groups else "") + "CLASS/IMAGE"
        lines.append(f"images in no folder of a class, {shown((*astray, *bare))}; expected {form}")
    holding = {"/".join(path.split("/")[:level]) for path in paths}
    if empty := [folder for folder in at_level if folder not in holding]:
        lines.append(f"folders of classes without an image, {shown(empty)}; fill or remove them")
    return lines


def _clashes(folders: Iterable[str], level: int) -> list[str]:
    """Folders that are two on this disk, and one in Unicode's composed form."""
    known = defaultdict(list)
    for folder in folders:
        if folder.count("/") < level:
            known[_nfc(folder)].append(folder)
    pairs = [own for own in known.values() if len(own) > 1]
    return [
        f"{' and '.join(map(ascii, own))} are one name, spelled in two ways of Unicode; make them "
        "one folder"
        for own in pairs
    ]


def _remarks(found: _Found, inner: Sequence[Sequence[str]], depth: int, groups: bool) -> list[str]:
    lines = []
    if found.others:
        lines.append(
            f"files that are no images by their names are passed over, {shown(found.others)}"
        )
    deeper = ["/".join(own) for own in inner if len(own) > depth]
    if deeper:
        hint = "" if groups else "; if those are the classes, ask for groups"
        lines.append(
            f"images in folders within those of classes, {shown(dict.fromkeys(deeper))}, are of "
            f"the class{hint}"
        )
    return lines


def _nfc(name: str) -> str:
    return unicodedata.normalize("NFC", name)
