"""How a run of several ranks ends when one of them fails: everywhere, and told once.

A rank that ends before its time leaves a mark in the store that all ranks share. The first with
an error of its own tells of it. One that was stopped, or has lost touch with the others, first
looks who else has left a mark, and whose process is gone: so that a rank which was killed, and
could leave none, is named by those that it left.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import Store

from metaforge.errors import Followed, Interrupted, RankLost, one_line
from metaforge.place import Place

#: Seconds that a rank which was stopped waits for the others' marks.
_PATIENCE = 5.0


class Endings:
    """The marks of all ranks in a store, and whether their processes live."""

    def __init__(self, store: Store, place: Place):
        self._store, self._place = store, place
        self._others = [rank for rank in range(place.size) if rank != place.rank]
        self._processes: dict[int, tuple[int, int]] = {}
        self._set(f"here/{place.rank}", [place.machine, os.getpid()])

    def not_here(self) -> list[int]:
        """The ranks that have not begun."""
        for rank in self._others:
            if rank not in self._processes and (found := self._get(f"here/{rank}")):
                self._processes[rank] = (found[0], found[1])
        return [rank for rank in self._others if rank not in self._processes]

    def ended(self) -> bool:
        """Whether any other rank has ended."""
        return any(self._get(f"end/{rank}") or self._is_dead(rank) for rank in self._others)

    def done(self) -> None:
        """This rank has done its part."""
        with suppress(RuntimeError):  # the store may have ended with the first rank
            self._mark("done")
            self._leave()

    def verdict(self, error: BaseException) -> BaseException:
        """What this rank ends with; see ``Ranks.verdict``."""
        try:
            shown = self._shown(error)
            tells = not isinstance(shown, Followed) and self._store.add("told", 1) == 1
            self._leave()
        except RuntimeError:  # the store ended with its host: on each machine one tells of it
            shown = RankLost(self._gone([0]))
            before = range(self._place.machine, self._place.rank)
            tells = all(self._is_dead(rank) for rank in before)
        return shown if tells else Followed(str(shown), getattr(shown, "exit_code", 1))

    def _shown(self, error: BaseException) -> BaseException:
        """The error that ends the run, this rank's or another's."""
        stopped = isinstance(error, KeyboardInterrupt)
        if not stopped and not isinstance(error, RankLost):
            self._mark("failed", one_line(error), getattr(error, "exit_code", 1))
            return error
        self._mark("stopped" if stopped else "lost")
        marks = self._marks()
        for mark in marks.values():
            if mark["state"] == "failed":
                return Followed(mark["message"], mark["exit_code"])
        silent = [rank for rank in self._others if rank not in marks]
        if dead := [rank for rank in silent if self._is_dead(rank)]:
            return RankLost(self._gone(dead))
        unheard = f"{self._named(silent)} did not answer" if silent else ""
        if stopped or any(mark["state"] == "stopped" for mark in marks.values()):
            return Interrupted(f"stopped ({unheard})" if unheard else "stopped")
        return RankLost(f"{unheard}: it is stuck, or lost") if unheard else error

    def _gone(self, ranks: list[int]) -> str:
        return (
            f"{self._named(ranks)} ended early, without a word: killed, perhaps for lack of memory"
        )

    def _named(self, ranks: list[int]) -> str:
        numbers = ", ".join(map(str, ranks))
        return f"rank{'s' * (len(ranks) > 1)} {numbers} of {self._place.size}"

    def _leave(self) -> None:
        """Rank 0, which may be the store's host, leaves it last."""
        self._set(f"left/{self._place.rank}", True)
        deadline = time.monotonic() + _PATIENCE
        while self._place.rank == 0 and time.monotonic() < deadline:
            if all(self._get(f"left/{rank}") or self._is_dead(rank) for rank in self._others):
                return
            time.sleep(0.02)

    def _marks(self) -> dict[int, dict[str, Any]]:
        """The others' marks: of all that live and answer in time, or as soon as one failed."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            found = dict(self._found())
            missing = [rank for rank in self._others if rank not in found]
            failed = any(mark["state"] == "failed" for mark in found.values())
            late = time.monotonic() > deadline
            if failed or late or all(self._is_dead(rank) for rank in missing):
                return found
            time.sleep(0.05)

    def _found(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank in self._others:
            if mark := self._get(f"end/{rank}"):
                yield rank, mark

    def _mark(self, state: str, message: str = "", exit_code: int = 1) -> None:
        mark = {"state": state, "message": message, "exit_code": exit_code}
        self._set(f"end/{self._place.rank}", mark)

    def _is_dead(self, rank: int) -> bool:
        """Whether a rank's process is known to be gone, which only its own machine tells."""
        machine, pid = self._processes.get(rank, (-1, 0))
        if machine != self._place.machine:
            return False
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except ProcessLookupError:
            return True
        except OSError:  # another user's, or no /proc
            return False

    def _set(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value))

    def _get(self, key: str) -> Any:
        return json.loads(self._store.get(key)) if self._store.check([key]) else None
