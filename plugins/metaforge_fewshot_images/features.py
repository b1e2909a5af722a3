"""Features of CIFAR-100's images in an npz file: they are read by ``arrays``. Torch-free."""

from __future__ import annotations

import numpy as np

from metaforge.array_files import Arrays
from metaforge.class_labels import read_classes
from metaforge.errors import DataError, said_by
from metaforge_arrays.options import ArraysOptions
from metaforge_fewshot_images.cifar_names import CLASSES, SUPERCLASS_OF, split_of
from metaforge_fewshot_images.content import few
from metaforge_fewshot_images.known import KNOWN
from metaforge_fewshot_images.options import BenchmarkOptions

_WANTED = "expected X [n, p] and y [n], names of classes or positions in class_names"


def as_arrays(options: BenchmarkOptions) -> ArraysOptions:
    """The options of ``arrays`` that read the file, with the split and the superclasses of its
    classes by their names. Raises ``DataError`` for classes that are not CIFAR-100's."""
    labels = _labels(options)
    split = split_of(options.NAME)
    return ArraysOptions(
        path=options.path,
        ways=options.ways,
        shots=options.shots,
        queries=options.queries,
        too_few=options.too_few,
        normalize=options.normalize,
        class_names=labels,
        split=np.array([split[label] for label in labels]),
        group=np.array([SUPERCLASS_OF[label] for label in labels]),
        within=options.within,
        licence=KNOWN[options.NAME].licence,
    )


def _labels(options: BenchmarkOptions) -> np.ndarray:
    """The name of each class [C], in the order of the labels."""
    with said_by(options.NAME, instead_of="arrays"):
        arrays = Arrays(options.path)
        if missing := arrays.missing({"x": "X", "y": "y"}):
            raise DataError("\n".join(f"{line}; {_WANTED}" for line in missing))
        classes = read_classes(arrays.get("y", "y"))
        names = classes.labels
        if "class_names" in arrays.names:
            names = classes.per_class("class_names", arrays.get("class_names", "class_names"))
    labels = np.array([str(name) for name in names])
    if strange := sorted(set(labels.tolist()) - set(CLASSES)):
        raise DataError(
            f"{options.NAME}: {options.path}: classes that are not CIFAR-100's: "
            f"{few(map(ascii, strange))}; {_WANTED}"
        )
    return labels
