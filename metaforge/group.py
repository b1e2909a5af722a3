"""Several ranks by ``torch.distributed``: gloo for the CPU, NCCL for CUDA.

What is computed in step (gradients, scores of validation) goes by collectives. What one rank
makes while the others wait, for seconds or hours, and what targets answer goes through the store
that all ranks share: who waits there sees when another has ended.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from metaforge import environment
from metaforge.blame import told
from metaforge.endings import Endings
from metaforge.errors import MetaforgeError, PluginError, RankLost, RecipeError, one_line
from metaforge.place import Place
from metaforge.ranks import Ranks
from metaforge.workers import portable

Answer = TypeVar("Answer")
#: Until all ranks have begun, and until all take part in a collective once one does.
_GATHERING, _IN_STEP = timedelta(minutes=5), timedelta(minutes=30)
#: Seconds between looks into the store: at first, at most, and for ranks that have ended.
_SOON, _LATER, _ENDED = 0.002, 0.1, timedelta(seconds=0.5)
#: Seconds that a rank has to end, once it is to.
_ENDING = 20.0
#: Bytes of one entry of the store, which takes 8 MiB at most.
_PIECE = 4 * 2**20


class Group(Ranks):
    """This process as one of several. Raises ``RankLost`` wherever another is missed."""

    def __init__(self, place: Place):
        self.place, self.rank, self.size = place, place.rank, place.size
        try:
            found, _, _ = next(dist.rendezvous("env://", timeout=_GATHERING))
            self._store = dist.PrefixStore("metaforge", found)
            self._ends = Endings(self._store, place)
            self._gather()
            dist.init_process_group(
                "gloo",
                store=dist.PrefixStore("gloo", found),
                rank=place.rank,
                world_size=place.size,
                timeout=_IN_STEP,
            )
        except RuntimeError as error:
            raise RankLost(f"the ranks did not come together: {one_line(error)}") from error
        self._groups: dict[str, dist.ProcessGroup] = {}
        self._calls = 0
        self._judged = False

    def device(self, name: str) -> str:
        kind = environment.pick_device(name)
        if kind == "cpu":
            return kind
        if kind != "cuda":
            raise RecipeError(
                f"device: {name!r}: several ranks compute on cpu, or on cuda with a device each: "
                "say device=cuda or device=cpu"
            )
        if self.place.local_size > (seen := torch.cuda.device_count()):
            raise RecipeError(
                f"device: {self.place.local_size} ranks on this machine, and torch sees {seen} "
                f"cuda devices: start it with --nproc-per-node {seen}, or with device=cpu"
            )
        torch.cuda.set_device(self.place.local_rank)
        return f"cuda:{self.place.local_rank}"

    def mean(self, own: Tensor, n: int) -> Tensor:
        return own.sum() / n

    def whole(self, own: Tensor, n: int) -> Tensor:
        share = self.share(n)
        stop = share.start + share.count
        held = own.new_zeros(n)
        held[share.start : stop] = own.detach()
        (held,) = self.total([held])
        return torch.cat([held[: share.start], own, held[stop:]])

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """One all-reduce for each kind of numbers among the tensors."""
        found = list(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            mine = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[i].reshape(-1) for i in mine])
            if flat.device.type == "cpu":
                self._reduce(flat)
            else:
                self._together(dist.all_reduce, flat, group=self._group(flat.device.type))
            parts = flat.split([tensors[i].numel() for i in mine])
            for i, part in zip(mine, parts, strict=True):
                found[i] = part.view(tensors[i].shape)
        return found

    def from_first(
        self, make: Callable[[], Answer], meanwhile: Callable[[], object] | None = None
    ) -> Answer:
        self._calls += 1
        key = f"first/{self._calls}"
        outcome: tuple[bool, Any] | None = None
        if self.first:
            outcome = _outcome(make)
            self._put(key, None)
        else:
            if meanwhile:
                meanwhile()
            self._wait(key)
        box = [outcome]
        self._together(dist.broadcast_object_list, box, src=0)
        assert box[0] is not None
        good, found = box[0]
        if not good:
            raise found
        return found

    def ordered(
        self, job: Callable[[int], Answer], positions: Sequence[int], workers_: int
    ) -> Iterator[Answer]:
        self._calls += 1
        key = f"job/{self._calls}"
        if not self.first:
            self._work(job, positions[self.rank :: self.size], key)
            return
        try:
            for turn, position in enumerate(positions):
                yield self._take(f"{key}/{turn}") if turn % self.size else job(position)
        finally:
            with suppress(RuntimeError):
                self._store.set(f"{key}/left", "")

    def _work(self, job: Callable[[int], Any], positions: Sequence[int], key: str) -> None:
        """This rank's jobs, until rank 0 wants no more of them."""
        for number, position in enumerate(positions):
            if self._store.check([f"{key}/left"]):
                return
            answer = _outcome(lambda at=position: job(at), every=True)  # type: ignore[misc]
            self._put(f"{key}/{self.rank + number * self.size}", answer)
            if not answer[0]:
                return

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        self._calls += 1
        key = f"led/{self._calls}/{self.place.machine}"
        if self.place.local_rank:
            self._wait(key)
        yield
        if not self.place.local_rank:
            self._put(key, None)

    def agree(self, facts: Callable[[], Mapping[str, str]], where: str) -> None:
        own = dict(facts())
        every: list[Any] = [None] * self.size
        self._together(dist.all_gather_object, every, own)
        unlike = [
            f"{name} {every[0][name]} on rank 0, {other[name]} on rank {rank}"
            for name in own
            for rank, other in enumerate(every)
            if other[name] != every[0][name]
        ]
        if unlike:
            raise PluginError(f"{where}: the ranks are not alike: {'; '.join(unlike)}")

    def verdict(self, error: BaseException) -> BaseException:
        if self._judged:
            return error
        self._judged = True
        # In a thread of C, which ends the process even from within a call that cannot be left.
        faulthandler.dump_traceback_later(_ENDING, exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM):  # it ends already
            signal.signal(number, signal.SIG_IGN)
        return self._ends.verdict(told(error))

    def leave(self) -> None:
        """This rank has done its part."""
        self._ends.done()
        dist.destroy_process_group()

    def _gather(self) -> None:
        deadline = time.monotonic() + _GATHERING.total_seconds()
        while missing := self._ends.not_here():
            if time.monotonic() > deadline:
                raise RankLost(f"rank {missing[0]} of {self.size} has not come in 5 minutes")
            time.sleep(_LATER)

    def _group(self, kind: str) -> dist.ProcessGroup:
        """The group for tensors on a kind of device other than the CPU."""
        if kind not in self._groups:
            self._groups[kind] = dist.new_group(backend="nccl", timeout=_IN_STEP)
        return self._groups[kind]

    def _reduce(self, tensor: Tensor) -> None:
        """Sum it over ranks, in its place. Who waits looks up now and then: a rank that is
        missed may have ended in a way that its connections do not tell."""
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        while True:
            over = work.is_completed()  # if so, an error is the work's own, and not of the wait
            try:
                work.wait(_ENDED)
                return
            except RuntimeError as error:
                if over:
                    raise RankLost(f"the ranks lost touch: {one_line(error)}") from error
            if self._ends.ended():
                raise RankLost("another rank has ended")

    def _together(self, collective: Callable[..., object], *arguments: Any, **more: Any) -> None:
        try:
            collective(*arguments, **more)
        except RuntimeError as error:
            raise RankLost(f"the ranks lost touch: {one_line(error)}") from error

    def _put(self, key: str, value: Any) -> None:
        data = pickle.dumps(value)
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        try:
            for number, piece in enumerate(pieces):
                self._store.set(f"{key}/piece/{number}", piece)  # type: ignore[arg-type]
            self._store.set(key, str(len(pieces)))
        except RuntimeError as error:
            raise RankLost(f"rank 0 is lost: {one_line(error)}") from error

    def _take(self, key: str) -> Any:
        """The answer under a key, once it is there, or the error that it is."""
        self._wait(key)
        names = [f"{key}/piece/{number}" for number in range(int(self._store.get(key)))]
        good, found = pickle.loads(b"".join(self._store.get(name) for name in names))
        for name in (key, *names):
            self._store.delete_key(name)
        if not good:
            raise found
        return found

    def _wait(self, key: str) -> None:
        """Until a key is there. ``RankLost`` where another rank ends before that."""
        pause, look = _SOON, time.monotonic() + _ENDED.total_seconds()
        try:
            while not self._store.check([key]):
                if time.monotonic() > look:
                    if self._ends.ended() and not self._store.check([key]):
                        raise RankLost("another rank has ended")
                    look = time.monotonic() + _ENDED.total_seconds()
                time.sleep(pause)
                pause = min(2 * pause, _LATER)
        except RuntimeError as error:
            raise RankLost(f"rank 0 is lost: {one_line(error)}") from error


def _outcome(make: Callable[[], Any], *, every: bool = False) -> tuple[bool, Any]:
    """(true, what is made), or (false, the error): one of ours, or ``every`` one."""
    try:
        return True, make()
    except (Exception, SystemExit) as error:
        shown = told(error)
        if not every and not isinstance(shown, MetaforgeError):
            raise
        return False, portable(shown)
