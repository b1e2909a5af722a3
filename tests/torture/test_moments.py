"""Runs that are killed, stopped or out of room at any moment are gone on with, bit for bit."""

from __future__ import annotations

import signal

import pytest

from tests.torture.harness import STAGES, dice, number, survives

pytestmark = pytest.mark.slow


def moment(whole, stage: str, rng) -> float:
    """Seconds after a stage was entered, within it."""
    entered = [*whole.ended.stages.values(), whole.ended.seconds]
    place = list(whole.ended.stages).index(stage)
    return rng.uniform(0, entered[place + 1] - entered[place])


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_random_moments_of_each_stage(zygote, whole, tmp_path, stage):
    rng = dice("kill", stage)
    for trial in range(number(2, 50)):
        fault = {"kind": "signal", "stage": stage, "signal": signal.SIGKILL}
        fault["after"] = moment(whole, stage, rng)
        ended = survives(zygote, tmp_path / f"{trial}", whole.figures, fault, f"SIGKILL, {stage}")
        assert ended.code in (-signal.SIGKILL, 0), fault


@pytest.mark.parametrize("number_", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_stopped_at_random_moments_of_each_stage(zygote, whole, tmp_path, number_):
    rng = dice("stop", number_)
    for trial in range(number(5, 50)):
        stage = STAGES[trial % len(STAGES)]
        fault = {"kind": "signal", "stage": stage, "signal": number_}
        fault["after"] = moment(whole, stage, rng)
        ended = survives(zygote, tmp_path / f"{trial}", whole.figures, fault, f"{number_.name}")
        assert "Traceback" not in ended.err, (fault, ended.err)
        assert ended.code in (130, 0, -signal.SIGTERM), (fault, ended.code, ended.err)


@pytest.mark.parametrize("how", ["kill", "full"])
def test_ended_at_random_bytes_of_all_that_is_written(zygote, whole, tmp_path, how):
    rng = dice("byte", how)
    for trial in range(number(6, 200)):
        fault = {"kind": "byte", "at": rng.randrange(whole.ended.bytes), "how": how}
        kind = {"kill": "SIGKILL within a write", "full": "no space left, from a byte on"}[how]
        ended = survives(zygote, tmp_path / f"{trial}", whole.figures, fault, kind)
        if how == "full":
            assert ended.code in (0, 3), (fault, ended.code, ended.err)
            assert ended.code == 0 or "No space left" in ended.told_in_one(), (fault, ended.err)


def test_files_may_not_grow_beyond_a_limit(zygote, whole, tmp_path):
    rng = dice("size")
    for trial in range(number(3, 40)):
        fault = {"kind": "size", "limit": rng.choice([0, 100, 1000, rng.randrange(20_000)])}
        cwd = tmp_path / f"{trial}"
        ended = survives(zygote, cwd, whole.figures, fault, "file size limit of the system")
        assert ended.code in (0, 3), (fault, ended.err)


def test_the_clock_is_set_back_again_and_again(zygote, whole, tmp_path):
    for trial, seconds in enumerate((3600, 1e9)[: number(1, 2)]):
        fault = {"kind": "clock", "seconds": seconds}
        cwd = tmp_path / f"{trial}"
        assert survives(zygote, cwd, whole.figures, fault, "clock set back").code == 0
