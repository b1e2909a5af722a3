"""Files are whole or absent; what a crash cut short is dropped."""

import json
import multiprocessing

import pytest
import torch

from metaforge import records, seals
from metaforge.errors import DamagedFile, DataError, NumericError
from metaforge.recipe import load
from metaforge.records import Lines
from metaforge.run_files import Record
from metaforge.rundir import RunDir
from tests.small import SMALL


def test_a_torn_last_line_is_dropped_and_appending_goes_on(tmp_path):
    path = tmp_path / "targets.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3')
    lines = Lines(path, Record)
    assert lines.records == [{"a": 1}, {"a": 2}]
    lines.append({"a": 3})
    assert [json.loads(x)["a"] for x in path.read_text().splitlines()] == [1, 2, 3]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    records.write_json(path, {"old": True})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match=r"No space left.*earlier files are intact"):
        records.write_json(path, {"new": True})
    assert records.read_json(path, Record) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_nan_never_reaches_a_file(tmp_path):
    found = {"mean": float("nan"), "curve": [1.0, {"sd": float("inf")}], "n": 3}
    with pytest.raises(NumericError, match=r"x\.json: not finite, .*: mean, curve\[1\]\.sd: "):
        records.write_json(tmp_path / "x.json", found)
    assert not list(tmp_path.iterdir())


def test_tensors_round_trip_with_metadata(tmp_path):
    tensors = {"a": torch.randn(3, 2, dtype=torch.float64), "b": torch.arange(4)}
    records.save_tensors(tmp_path / "x.safetensors", tensors, {"step": 3, "list": [1, None]})
    found, metadata = records.load_tensors(tmp_path / "x.safetensors")
    assert metadata == {"step": 3, "list": [1, None]}
    assert all(torch.equal(found[name], value) for name, value in tensors.items())


def test_a_truncated_tensor_file_is_named(tmp_path):
    path = tmp_path / "x.safetensors"
    records.save_tensors(path, {"a": torch.randn(100)})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"x\.safetensors: not a whole safetensors file"):
        records.load_tensors(path)


def _hold(path, ready, release):
    with RunDir(path).locked():
        ready.set()
        release.wait(20)


def test_a_second_process_is_refused_and_a_dead_ones_lock_is_gone(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    assert ready.wait(30)
    with (
        pytest.raises(DataError, match=f"process {holder.pid} is running it"),
        RunDir(tmp_path).locked(),
    ):
        pass
    holder.kill()
    holder.join()
    with RunDir(tmp_path).locked():
        pass


def lines_of(path, count=3):
    lines = Lines(path, Record)
    for value in range(count):
        lines.append({"a": value})
    return path.read_text().splitlines(keepends=True)


def test_a_line_that_was_altered_is_dropped_with_all_after_it(tmp_path):
    path = tmp_path / "targets.jsonl"
    whole = lines_of(path)
    path.write_text("".join([whole[0], whole[1].replace("1", "7", 1), whole[2]]))
    with pytest.raises(DamagedFile, match=r"targets\.jsonl: line 2 is damaged: its content"):
        records.read_lines(path, Record)
    lines = Lines(path, Record)
    assert lines.records == [{"a": 0}]
    assert "line 2 is damaged" in lines.dropped
    for value in (1, 2):
        lines.append({"a": value})
    assert path.read_text() == "".join(whole)


def test_lines_of_before_there_were_seals_get_theirs(tmp_path):
    path = tmp_path / "targets.jsonl"
    whole = lines_of(path)
    path.write_text("".join(f'{{"a": {value}}}\n' for value in range(3)))
    assert records.read_lines(path, Record) == [{"a": value} for value in range(3)]
    assert Lines(path, Record).dropped == ""
    assert path.read_text() == "".join(whole)


def test_a_line_that_lost_its_seal_is_seen_among_others(tmp_path):
    path = tmp_path / "targets.jsonl"
    whole = lines_of(path)
    path.write_text("".join([*whole[:2], '{"a": 2}\n']))
    with pytest.raises(DamagedFile, match="line 3 is damaged: some lines have a seal"):
        records.read_lines(path, Record)


@pytest.mark.parametrize("value", [{"b": 1.5}, {"a": 2}, {}])
def test_json_of_another_content_breaks_its_seal(tmp_path, value):
    path = tmp_path / "env.json"
    records.write_json(path, seals.sealed({"a": 1}))
    assert records.read_json(path, Record) == {"a": 1}
    seal = json.loads(path.read_text())["seal"]
    path.write_text(json.dumps({**value, "seal": seal}))
    with pytest.raises(DamagedFile, match=r"env\.json: damaged: its content is not what was"):
        records.read_json(path, Record)


def test_tensors_of_another_content_break_their_seal(tmp_path):
    path = tmp_path / "x.safetensors"
    records.save_tensors(path, {"a": torch.ones(4)}, {"step": 3})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedFile, match="its content is not what was written there; delete it"):
        records.load_tensors(path)


def test_parts_of_the_dead_are_gone_once_the_folder_is_held(tmp_path):
    for place in (tmp_path, tmp_path / "artifacts"):
        place.mkdir(exist_ok=True)
        (place / ".results.json.99-0a.part").write_bytes(b"half")
    with RunDir(tmp_path).locked():
        assert not list(tmp_path.rglob("*.part"))


def test_a_folder_that_cannot_be_locked_is_not_taken_for_one_in_use(tmp_path, monkeypatch):
    def refused(*given):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(DataError, match="cannot be locked: No locks"), RunDir(tmp_path).locked():
        pass


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match=r"cannot begin a run in .*No space left"):
        RunDir.create(load({**SMALL, "output": str(tmp_path / "runs")}))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_recipe_that_was_altered_in_its_folder_is_refused(tmp_path):
    run = RunDir.create(load({**SMALL, "output": str(tmp_path)}))
    text = (run.path / "resolved.yaml").read_text()
    assert load(run.path / "resolved.yaml").recipe.seed == 0
    (run.path / "resolved.yaml").write_text(text.replace("seed: 0", "seed: 1"))
    with pytest.raises(DamagedFile, match=r"resolved\.yaml: .*not what was written there"):
        run.recipe_text()
