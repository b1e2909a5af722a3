"""Whether a large array fits, asked before it is made; unused memory given back."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from metaforge.errors import DataError

if TYPE_CHECKING:
    import torch

_CGROUP = Path("/sys/fs/cgroup")


def available(device: torch.device) -> int | None:
    """Bytes that can still be allocated on a device; None where the system does not say."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    return free()


def free() -> int | None:
    """Bytes of this machine's memory that can still be allocated; None where it does not say."""
    known = [value for value in (_machine(), _control_group()) if value is not None]
    return min(known, default=None)


def require(needed: int, device: torch.device, what: str, advice: str) -> None:
    """Raise ``DataError`` if ``needed`` bytes do not fit on the device."""
    free = available(device)
    if free is not None and needed > free:
        raise DataError(
            f"{what} takes {gigabytes(needed)} and {gigabytes(free)} are free on {device}; {advice}"
        )


def give_back() -> None:
    """Give the system what the allocator holds unused. glibc keeps it in pieces, which over
    hundreds of targets are some tens of megabytes in every worker; elsewhere nothing is done."""
    if _trim is not None:
        _trim(0)


def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


_trim = _malloc_trim()


def _machine() -> int | None:
    """What Linux estimates to be available without swapping; elsewhere, all the memory."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return 1024 * int(line.split()[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


def _control_group() -> int | None:
    """What a container's limit (cgroup v2) leaves, file cache that can be dropped included."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        statistics = dict(
            line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):  # no limit reads "max"
        return None
    return limit - used + int(statistics.get("inactive_file", 0))


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
