"""Factors of large banks' matrices on disk, by what they are factors of.

A file holds a header and the triangle's square as LAPACK left it, column after column, so that
it is mapped into memory, shared with other processes. The header has a digest of all of it and
the file's name, so that neither damage nor a file in another's place is taken for the factor.
The name is a digest of the signatures, of a part of the
kernel matrix, which has in it all that a kernel has fitted, of lambda and of what computes. On
the CPU alone: elsewhere a factorisation takes less time than a file.

``METAFORGE_FACTORS`` says how many gigabytes such files may take together, 10 unless set; 0
keeps none. Older ones make room. Symbols: N bank tasks.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

from metaforge import environment
from metaforge.cache import hold
from metaforge.components import Context
from metaforge.contracts import GramOperator
from metaforge.errors import DataError, RecipeError
from metaforge.linalg import Factor
from metaforge.records import remove_parts, whole_file
from metaforge.threads import cores

#: Banks for which a file pays, in tasks.
LEAST_TASKS = 8000
_VARIABLE, _GIGABYTES = "METAFORGE_FACTORS", 10.0
#: Bytes of the header, and what it begins with.
_HEADER, _FORMAT = 4096, "metaforge factor 2"
#: Bytes of a disk that are left to others.
_SPARE = 1 << 30
#: Tasks whose columns of K are in a file's name, and tasks whose square of K is; columns that are
#: written, or digested, at a time.
_PROBES, _SQUARE, _CHUNK = 16, 1000, 256
#: Environment variables that say how many threads LAPACK has, on which its bits depend.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def limit() -> int:
    """Bytes that factors may take together. ``RecipeError`` where the variable is no number."""
    text = os.environ.get(_VARIABLE, "")
    try:
        gigabytes = float(text) if text else _GIGABYTES
        if not 0 <= gigabytes < float("inf"):
            raise ValueError
    except ValueError:
        raise RecipeError(
            f"{_VARIABLE}={text!r}: expected the gigabytes that factors may take in the cache, "
            "such as 10, or 0 for none"
        ) from None
    return int(gigabytes * 1e9)


def kept(
    gram: GramOperator,
    ridge: float,
    dtype: torch.dtype,
    context: Context,
    make: Callable[[], Factor],
) -> Factor:
    """``make()``, the factor of ``K + ridge I``, or what it gave before, bit for bit.

    A file that cannot be written, that is not whole or not there costs time alone;
    ``context.report`` is told of what was found and kept, and why not.
    """
    n_tasks, size = gram.n_tasks, dtype.itemsize * gram.n_tasks**2 + _HEADER
    on_cpu = torch.device(context.device).type == "cpu"
    if not on_cpu or n_tasks < LEAST_TASKS or not limit():
        return make()
    if size > limit():
        context.report(
            f"note: the bank's factor, {size / 1e9:.1f} GB, is not kept for the next run: "
            f"{_VARIABLE} allows {limit() / 1e9:g}"
        )
        return make()
    path = context.cache_dir / "factors" / f"{key(gram, ridge, dtype)}.factor"
    found = _load(path, n_tasks, dtype, context.report)
    if found is None:
        found = make()
        _save(path, found, size, context.report)
    return found


def key(gram: GramOperator, ridge: float, dtype: torch.dtype) -> str:
    """A digest of all that the factor's bits depend on."""
    n_tasks, every = gram.n_tasks, slice(None)
    digest = hashlib.blake2b(digest_size=16)
    probes = torch.arange(min(_PROBES, n_tasks)) * n_tasks // min(_PROBES, n_tasks)
    first = slice(0, min(n_tasks, _SQUARE))
    for part in (gram.signatures(), gram.block(every, probes), gram.block(first, first)):
        digest.update(part.contiguous().numpy().data)
    computes = {
        "task": [n_tasks, gram.kernel_name, ridge, str(dtype)],
        "code": [environment.engine_digest(), torch.__version__, np.__version__, scipy.__version__],
        "machine": [platform.machine(), platform.node(), cores()],
        "threads": [torch.get_num_threads(), *map(os.environ.get, _THREADS)],
    }
    digest.update(json.dumps(computes).encode())
    return digest.hexdigest()


def _load(
    path: Path, n_tasks: int, dtype: torch.dtype, report: Callable[[str], None]
) -> Factor | None:
    if not os.path.isfile(path):
        return None
    try:
        with path.open("rb") as file:
            hold(file.fileno())
            header = json.loads(file.read(_HEADER))
            # Copy on write: LAPACK is handed the memory as its own, and the file stays as it is.
            columns = np.memmap(file, _numpy(dtype), "c", _HEADER, (n_tasks, n_tasks))
        whole = path.stat().st_size == columns.nbytes + _HEADER
        if not whole or header != _header(columns, path.stem, header):
            raise ValueError("it is not what was written")
    except (OSError, ValueError, KeyError, TypeError) as error:
        report(f"note: {path} is damaged ({error}) and made anew")
        with suppress(OSError):
            path.unlink()
        return None
    with suppress(OSError):  # the cache may be another's, to be read alone
        os.utime(path)
    report(f"scores: the factor of the bank's matrix from the cache, {path}")
    return Factor(torch.from_numpy(columns).T, header["jitter"], header["condition"])


def _save(path: Path, factor: Factor, size: int, report: Callable[[str], None]) -> None:
    """Write beside, then rename: a reader sees a whole file or none."""
    columns = factor.lower.numpy().T
    facts = {"jitter": factor.jitter, "condition": factor.condition}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(path.parent)
        old = _oldest(path.parent, limit() - size)
        free = shutil.disk_usage(path.parent).free
        if free + sum(one.stat().st_size for one in old) < size + _SPARE:
            report(
                f"note: the bank's factor, {size / 1e9:.1f} GB, is not kept for the next run: "
                f"{free / 1e9:.1f} GB are free in {path.parent}"
            )
            return
        for one in old:
            one.unlink(missing_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps(_header(columns, path.stem, facts)).encode().ljust(_HEADER))
            for start in range(0, len(columns), _CHUNK):
                file.write(np.ascontiguousarray(columns[start : start + _CHUNK]).data)
        report(f"scores: kept the factor of the bank's matrix, {size / 1e9:.1f} GB, in {path}")
    except (OSError, DataError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        report(
            f"note: the bank's factor is not kept for the next run, as {path.parent} is of no use "
            f"({why}): set METAFORGE_CACHE to a folder that can be written, or "
            f"{_VARIABLE}=0"
        )


def _oldest(folder: Path, most: int) -> list[Path]:
    """What was not used for longest, without which the factors take no more than ``most`` bytes."""
    left = []
    files = sorted(folder.glob("*.factor"), key=lambda file: file.stat().st_mtime)
    taken = sum(file.stat().st_size for file in files)
    for file in files:
        if taken <= most:
            break
        taken -= file.stat().st_size
        left.append(file)
    return left


def _header(columns: np.ndarray, name: str, facts: dict[str, float]) -> dict[str, Any]:
    """What the file says of itself: its name, ``facts``, and a digest of all columns."""
    return {
        "format": _FORMAT,
        "name": name,
        "tasks": len(columns),
        "dtype": columns.dtype.name,
        "digest": _digest(columns),
        "jitter": facts["jitter"],
        "condition": facts["condition"],
    }


def _digest(columns: np.ndarray) -> str:
    """Of the digests of its parts, which are made on all cores."""

    def part(start: int) -> bytes:
        some = np.ascontiguousarray(columns[start : start + _CHUNK])
        return hashlib.blake2b(some.data, digest_size=16).digest()

    with ThreadPoolExecutor(cores()) as pool:
        parts = b"".join(pool.map(part, range(0, len(columns), _CHUNK)))
    return hashlib.blake2b(parts, digest_size=16).hexdigest()


def _numpy(dtype: torch.dtype) -> type[np.generic]:
    return np.float32 if dtype == torch.float32 else np.float64
