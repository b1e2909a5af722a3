"""What ``python -m benchmarks`` says of its rows, on rows that are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import check, harness, pages
from benchmarks.harness import Row, compare, machine

PEER, OURS = "peer", "metaforge"


def row(times: float) -> Row:
    """Ours is so many times faster than the peer; beside both, one that is not ours."""
    return Row("made up", PEER, {PEER: (1.0,) * 3, OURS: (1 / times,) * 3, "loop": (9.0,) * 3})


def stored(folder: Path, **ratios: float) -> Path:
    path = folder / "stored.json"
    named = {f"{key}: {OURS}": ratio for key, ratio in ratios.items()}
    path.write_text(json.dumps({"machine": machine(), "ratios": named}))
    return path


def in_turn(*times: float) -> Callable[[], Row]:
    left = iter(times)
    return lambda: row(next(left))


def test_a_slow_down_of_a_quarter_fails_and_one_of_a_tenth_does_not(tmp_path, capsys):
    path = stored(tmp_path, a=10.0, b=1.0)
    timed = {"a": lambda: row(10 / 1.25), "b": lambda: row(1 / 1.1)}
    assert check.main(timed, path) == 1
    lines = capsys.readouterr().out.splitlines()
    (failing,) = [line for line in lines if "SLOWER" in line]
    assert failing.startswith("a: metaforge")
    assert "1.25 x the time" in failing
    assert "1 of 2" in lines[-1]
    assert check.main({"a": lambda: row(9.1), "b": lambda: row(1 / 1.1)}, path) == 0
    assert check.main({"a": lambda: row(30.0), "b": lambda: row(1.0)}, path) == 0


def test_a_row_that_fails_is_timed_once_more(tmp_path):
    path = stored(tmp_path, a=10.0)
    assert check.main({"a": in_turn(5.0, 9.5)}, path) == 0
    assert check.main({"a": in_turn(9.5)}, path) == 0, "one that does not fail is timed once"
    assert check.main({"a": in_turn(5.0, 6.0)}, path) == 1


def test_a_row_that_is_missing_is_told_and_fails(tmp_path, capsys):
    path = stored(tmp_path, a=2.0, gone=3.0)
    assert check.main({"a": lambda: row(2.0)}, path) == 1
    assert "gone: metaforge" in (said := capsys.readouterr().out)
    assert "MISSING" in said


def test_a_new_row_is_told_and_does_not_fail(tmp_path, capsys):
    path = stored(tmp_path, a=2.0)
    assert check.main({"a": lambda: row(2.0), "b": lambda: row(1.0)}, path) == 0
    assert "new: not stored yet" in capsys.readouterr().out


def test_without_stored_ratios_it_says_what_to_do(tmp_path, capsys):
    assert check.main({"a": lambda: row(2.0)}, tmp_path / "stored.json") == 2
    assert "python -m benchmarks --store" in capsys.readouterr().out


def test_what_is_stored_is_what_is_checked(tmp_path):
    path = tmp_path / "stored.json"
    assert check.store({"a": lambda: row(4.0)}, path) == 0
    content = json.loads(path.read_text())
    assert content["ratios"] == {"a: metaforge": 4.0}, "the peer and others are no ratios of ours"
    assert content["machine"]["processor"] == machine()["processor"]
    assert check.main({"a": lambda: row(4.0)}, path) == 0


def test_ratios_of_another_processor_are_said_to_be_so(tmp_path, capsys):
    path = stored(tmp_path, a=2.0)
    content = json.loads(path.read_text())
    content["machine"]["processor"] = "abacus"
    path.write_text(json.dumps(content))
    assert check.main({"a": lambda: row(2.0)}, path) == 0
    assert "another processor, abacus" in capsys.readouterr().out


def test_memory_beyond_what_is_promised_is_missed():
    held = Row("made up", PEER, {PEER: (1.0,)}, memory={PEER: 30}, most={PEER: 20})
    assert held.missed() == [PEER]
    assert not Row("made up", PEER, {PEER: (1.0,)}, memory={PEER: 20}, most={PEER: 20}).missed()


def test_every_row_has_its_peak_memory():
    made = compare("made up", {"a": lambda: bytearray(1)}, peer="a", rounds=2, least_seconds=0.0)
    assert set(made.memory) == {"a"}


def test_what_takes_minutes_is_called_once_alone():
    calls = {"a": 0, "b": 0}

    def called(name: str) -> Callable[[], None]:
        return lambda: calls.update({name: calls[name] + 1})

    made = harness.once("made up", {name: called(name) for name in calls}, peer="a")
    assert calls == {"a": 1, "b": 1}
    assert set(made.memory) == set(calls)
    assert all(len(took) == 1 for took in made.seconds.values())


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are Linux's")
def test_a_peak_counts_memory_that_the_calls_before_left_with_the_allocator():
    def call() -> None:
        [bytearray(100_000) for _ in range(300)]  # pieces that glibc keeps for itself

    call()
    call()
    assert harness.peak_memory(call) > 25e6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no benchmark nothing"),
        (["--device", "cuda:99"], "--device cuda:99"),
        (["--check", "--store"], "not allowed with"),
        (["--check", "ls"], "leave out names"),
        (["--check", "--full"], "leave out names"),
        (["--threads", "0"], "--threads 0: expected 1 or more"),
        (["--device", "meta"], "--device meta: expected cpu, cuda"),
        (["--json", "no/such/folder/x.json"], "no folder that can be written"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


# -- the page ------------------------------------------------------------------------------


def test_the_results_page_has_the_table_of_what_was_measured():
    page = pages.RESULTS.read_text(encoding="utf-8")
    text = pages.speed(json.loads(pages.MEASURED.read_text()))
    assert pages.put("speed", text, page) == page
    assert pages.put("speed", "nothing", page) != page


def test_what_is_measured_again_takes_the_place_of_its_own_benchmark(tmp_path):
    path, page = tmp_path / "measured.json", tmp_path / "page.md"
    page.write_text("above\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nbelow")
    pages.keep(harness.content({"a": [row(2.0)], "b": [row(3.0)]}), path, page)
    pages.keep(harness.content({"b": [row(4.0)]}), path, page)
    text = page.read_text()
    assert text.startswith("above\n")
    assert text.endswith("\nbelow")
    assert "| metaforge | 500 | 500 .. 500 | 2 |" in text
    assert "| metaforge | 250 | 250 .. 250 | 4 |" in text
    assert "| peer (peer) | 1000 | 1000 .. 1000 | 1 |" in text
    assert text.count("Measured on: ") == 1, "one machine is named once"
    with pytest.raises(ValueError, match="no <!-- other: begin -->"):
        pages.put("other", "text", text)
