"""Independent jobs in forked processes, their answers in order.

A job is a function of its position alone and computes on one thread, so the answers are the
same bits however many processes share the positions. Forked processes inherit what the job
reads (data, theta, scores) and share its memory; only answers are sent.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from metaforge.blame import told
from metaforge.errors import MetaforgeError, RecipeError, one_line
from metaforge.recipe.schema import Recipe
from metaforge.threads import cores

Answer = TypeVar("Answer")


class WorkerLost(MetaforgeError):
    """A process that shares the work could not be started, or has ended before its time."""


#: Processes that ``workers: auto`` starts at most: each has its own working memory.
_MOST = 8


def count(recipe: Recipe, device: str, ranks: int = 1) -> int:
    """How many processes share the targets (of each of several ranks, one); ``RecipeError``
    where several were asked for and cannot be had."""
    asked = recipe.evaluate.workers
    obstacle = f"{ranks} ranks share the targets" if ranks > 1 else _obstacle(recipe, device)
    if asked is None:
        return 1 if obstacle else min(_MOST, cores())
    if asked > 1 and obstacle:
        raise RecipeError(f"evaluate.workers: {asked}: {obstacle}; set evaluate.workers: 1")
    return asked


def _obstacle(recipe: Recipe, device: str) -> str | None:
    """Why work cannot be forked here, if so."""
    if recipe.threads != 1:
        return "workers compute on one thread each, which needs threads: 1"
    if not sys.platform.startswith("linux"):
        return f"processes cannot be forked safely on {sys.platform}"
    if multiprocessing.current_process().daemon:
        return "a daemonic process may not have processes of its own"
    if torch.device(device).type != "cpu" or torch.accelerator.is_available():
        # Autograd keeps a thread for every accelerator it sees, which a fork does not copy.
        return "processes cannot be forked once PyTorch has an accelerator in use"
    return None


def ordered(
    job: Callable[[int], Answer], positions: Sequence[int], workers: int
) -> Iterator[Answer]:
    """``job(p)`` for each position, in their order; worker w takes every W-th of them.

    An error of a job is raised here, at its position. Leaving early ends the workers.
    """
    workers = min(workers, len(positions))
    if workers <= 1:
        yield from map(job, positions)
        return
    crew = _Crew(job, positions, workers)
    try:
        for turn in range(len(positions)):
            yield crew.answer(turn % workers)
    finally:
        crew.end()


class _Crew:
    """Forked processes, each with a pipe for its answers."""

    def __init__(self, job: Callable[[int], Any], positions: Sequence[int], workers: int):
        fork = multiprocessing.get_context("fork")
        self.answers: list[Connection] = []
        self.processes: list[Any] = []
        for first in range(workers):
            receive, send = fork.Pipe(duplex=False)
            self.answers.append(receive)
            process = fork.Process(
                target=_work, args=(job, positions[first::workers], send, self.answers), daemon=True
            )
            try:
                process.start()
            except OSError as error:  # a limit on processes, or on memory
                self.answers.pop().close()
                self.end()
                raise WorkerLost(f"no worker process could be started: {error.strerror}") from None
            send.close()  # so that a worker's death reads as the end of its answers
            self.processes.append(process)

    def answer(self, worker: int) -> Any:
        try:
            good, found = self.answers[worker].recv()
        except EOFError:
            self.processes[worker].join()
            raise WorkerLost(
                f"a worker process ended early (exit code {self.processes[worker].exitcode}; -9 is "
                "often a lack of memory)"
            ) from None
        if not good:
            raise found
        return found

    def end(self) -> None:
        for process, answers in zip(self.processes, self.answers, strict=True):
            answers.close()
            process.kill()  # a worker holds nothing, and one that is stopped hears nothing else
        for process in self.processes:
            process.join()


def _work(
    job: Callable[[int], Any], positions: Sequence[int], send: Connection, inherited: Sequence[Any]
) -> None:
    """A worker's life. It leaves Ctrl-C to its parent, and ends when nobody reads any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for connection in inherited:
        connection.close()
    with suppress(BrokenPipeError):
        try:
            for position in positions:
                send.send((True, job(position)))
        except BrokenPipeError:
            raise
        except (Exception, SystemExit) as error:
            send.send((False, portable(told(error))))


def portable(error: BaseException) -> BaseException:
    """The error itself, or one that says the same where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(one_line(error))
    return error
