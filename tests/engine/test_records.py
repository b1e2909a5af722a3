"""Files are whole or absent; what a crash cut short is dropped."""

import json
import multiprocessing

import pytest
import torch

from metaforge import records
from metaforge.errors import DataError
from metaforge.records import Lines
from metaforge.run_files import Record
from metaforge.rundir import RunDir


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
    with pytest.raises(ValueError, match="JSON compliant"):
        records.write_json(tmp_path / "x.json", {"mean": float("nan")})


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
