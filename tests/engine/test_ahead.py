"""Tasks read ahead are those read at their turn, and nothing is left behind."""

from __future__ import annotations

import threading

import pytest

from metaforge.ahead import Ahead


def test_takes_are_those_of_the_function_each_begun_beside_the_one_before():
    begun = [threading.Event() for _ in range(4)]
    threads = []

    def make(step: int) -> int:
        threads.append(threading.current_thread())
        begun[step].set()
        return 10 * step

    with Ahead(make, until=4) as ahead:
        for step in range(4):
            assert ahead.take(step) == 10 * step
            if step < 3:
                assert begun[step + 1].wait(5), "the next one is begun before it is asked for"
    assert len(threads) == 4
    assert threads[0] is threading.main_thread()
    assert not any(thread.is_alive() for thread in threads[1:])


def test_a_step_that_is_done_again_is_made_again():
    with Ahead(lambda step: step, until=9) as ahead:
        assert [ahead.take(step) for step in (0, 1, 2, 1, 2, 3, 8)] == [0, 1, 2, 1, 2, 3, 8]


def test_an_error_comes_at_its_turn():
    def make(step: int) -> int:
        if step == 1:
            raise OSError("gone")
        return step

    with Ahead(make, until=3) as ahead:
        assert ahead.take(0) == 0
        with pytest.raises(OSError, match="gone"):
            ahead.take(1)
        assert ahead.take(2) == 2
