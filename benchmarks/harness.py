"""Timing of named callables side by side, in one process.

A machine's speed drifts (other work, clocks), so times taken minutes apart say little.
Here every round times each callable once, in rotating order, and a ratio is the median
over rounds of the ratio *within* a round.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from metaforge.components import Context
from metaforge.memory import give_back

#: Where benchmarks compute; ``use`` sets it.
_device = "cpu"


def use(device: str) -> None:
    """Compute on this device from now on; a ``RuntimeError`` where it cannot be used."""
    global _device
    torch.empty(1, device=device)
    _device = device


def here(value: Any) -> Any:
    """A tensor, module or batch of tasks on the device in use."""
    return value.to(_device)


def context(**more: Any) -> Context:
    return Context(device=_device, **more)


@dataclass(frozen=True)
class Row:
    """One question and its answers.

    seconds  ``{name: (seconds of one call, one entry a round)}``
    peer     the name that ratios are taken against
    target   ``{name: least ratio that is promised}``
    note     the setting, in words
    memory   ``{name: peak bytes above the start}`` where it was measured
    most     ``{name: most bytes that are promised}``

    A name that starts with "metaforge" is ours: ``--check`` watches its ratio.
    """

    name: str
    peer: str
    seconds: Mapping[str, tuple[float, ...]]
    target: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def spread(self, name: str) -> tuple[float, float]:
        """The quartiles of a name's seconds; of a single round, that one."""
        if len(self.seconds[name]) == 1:
            return self.seconds[name][0], self.seconds[name][0]
        low, _, high = statistics.quantiles(self.seconds[name], n=4, method="inclusive")
        return low, high

    def ratio(self, name: str) -> float:
        """How many times faster than the peer: the median of the ratios within rounds."""
        pairs = zip(self.seconds[self.peer], self.seconds[name], strict=True)
        return statistics.median(peer / own for peer, own in pairs)

    def missed(self) -> list[str]:
        """The names that fall short of what is promised."""
        slow = [name for name, least in self.target.items() if self.ratio(name) < least]
        return slow + [n for n, most in self.most.items() if self.memory.get(n, 0) > most]

    def to_dict(self) -> dict[str, Any]:
        entries = {
            name: {
                "median_s": self.median(name),
                "quartiles_s": self.spread(name),
                "times_peer": self.ratio(name),
                "promised": self.target.get(name),
                "peak_bytes": self.memory.get(name),
                "rounds": len(rounds),
            }
            for name, rounds in self.seconds.items()
        }
        return {"name": self.name, "note": self.note, "peer": self.peer, "entries": entries}


def compare(
    name: str,
    callables: Mapping[str, Callable[[], Any]],
    *,
    peer: str,
    target: Mapping[str, float] = MappingProxyType({}),
    note: str = "",
    rounds: int = 15,
    least_seconds: float = 0.02,
    memory: bool = True,
) -> Row:
    """Time ``{name: callable}`` interleaved; warm-up calls of each, then ``rounds`` rounds.

    A short callable is repeated within a round until ``least_seconds`` are filled.
    With ``memory``, one more call of each measures its peak.
    """
    repeats = {key: _repeats(call, least_seconds) for key, call in callables.items()}
    seconds: dict[str, list[float]] = {key: [] for key in callables}
    order = list(callables)
    for _ in range(rounds):
        for key in order:
            seconds[key].append(_time(callables[key], repeats[key]))
        order.append(order.pop(0))
    measured = callables if memory else {}
    every = {key: peak_memory(call) for key, call in measured.items()}
    peaks = {key: peak for key, peak in every.items() if peak is not None}
    rounds_of = {key: tuple(values) for key, values in seconds.items()}
    return Row(name, peer, rounds_of, target, note, peaks)


def once(
    name: str,
    callables: Mapping[str, Callable[[], Any]],
    *,
    peer: str,
    target: Mapping[str, float] = MappingProxyType({}),
    note: str = "",
    most: Mapping[str, int] = MappingProxyType({}),
) -> Row:
    """Each callable a single time, its peak memory of that call: for what takes minutes, where
    warming up is nothing."""
    seconds, peaks = {}, {}
    for key, call in callables.items():
        peak, seconds[key] = _timed_peak(call)
        if peak is not None:
            peaks[key] = peak
    return Row(
        name, peer, {key: (took,) for key, took in seconds.items()}, target, note, peaks, most
    )


def _timed_peak(call: Callable[[], Any]) -> tuple[int | None, float]:
    took: list[float] = []
    peak = peak_memory(lambda: took.append(_time(call, 1)))
    return peak, took[0]


def _repeats(call: Callable[[], Any], least_seconds: float) -> int:
    """How many calls fill these seconds, after one to warm up, which alone may do."""
    if _time(call, 1) >= least_seconds:
        return 1
    return max(1, round(least_seconds / max(_time(call, 1), 1e-7)))


def _time(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of one call, averaged over back-to-back repeats."""
    synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronize()
    return (time.perf_counter() - start) / repeats


def synchronize() -> None:
    if _device.startswith("cuda"):
        torch.cuda.synchronize(_device)


def peak_memory(call: Callable[[], Any]) -> int | None:
    """Call it, and tell its peak bytes above the start: allocated ones on CUDA, else resident
    ones; None where Linux's /proc is missing."""
    if _device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(_device)
        start = torch.cuda.memory_allocated(_device)
        call()
        return torch.cuda.max_memory_allocated(_device) - start
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        call()
        return None
    gc.collect()  # garbage that is freed within the call would hide as much of its own,
    give_back()  # and so would what the allocator holds from the calls before
    reset.write_text("5")  # 5 resets the high-water mark VmHWM (proc(5))

    before = resident("VmRSS")
    call()
    return max(resident("VmHWM") - before, 0)


def resident(key: str = "VmRSS") -> int:
    """Bytes of this process in memory, now (``VmRSS``) or at most (``VmHWM``); Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])


def machine() -> dict[str, Any]:
    """What a figure depends on beside the code."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(_device) if _device.startswith("cuda") else _device,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def facts() -> dict[str, Any]:
    """``machine`` without its load, for pages."""
    return {key: value for key, value in machine().items() if key != "load"}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def render(row: Row) -> str:
    """A row as text: a line a callable, with its quartiles and its speed over the peer's."""
    lines = [row.name + (f"  ({row.note})" if row.note else "")]
    for name in row.seconds:
        low, high = (1e3 * value for value in row.spread(name))
        line = f"  {name:<32}{1e3 * row.median(name):10.3f} ms  [{low:.3f} .. {high:.3f}]"
        line += f"  {row.ratio(name):6.2f}x" + (" (peer)" if name == row.peer else "")
        if name in row.target:
            line += f"  promised {row.target[name]:g}x"
        if name in row.memory:
            line += f"  {row.memory[name] / 2**20:.0f} MiB"
        lines.append(line)
    return "\n".join(lines)


def content(results: Mapping[str, list[Row]]) -> dict[str, Any]:
    """All rows and the machine, for JSON."""
    return {
        "machine": machine(),
        "benchmarks": {name: [row.to_dict() for row in rows] for name, rows in results.items()},
    }
