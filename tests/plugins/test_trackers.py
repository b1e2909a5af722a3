"""The trackers: what they keep of a run, read back by the libraries that others read it with."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import metaforge
from metaforge.contracts import Tracker
from metaforge.testing import trackers as laws
from metaforge_trackers.figures import of_target
from metaforge_trackers.options import CsvOptions, TensorBoardOptions
from metaforge_trackers.tables import Csv
from tests.small import SMALL


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A small run with every tracker that is installed here."""
    folder = tmp_path_factory.mktemp("tracked")
    trackers = ["csv"]
    trackers += ["tensorboard"] if _here("tensorboard") else []
    trackers += [{"use": "mlflow", "store": str(folder / "mlruns")}] if _here("mlflow") else []
    named = [t if isinstance(t, dict) else {"use": t} for t in trackers]
    change = {"trackers": named, "output": str(folder / "runs")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAFORGE_CACHE", str(folder / "cache"))  # phase 1 is run, not found
        return Path(metaforge.run(SMALL, change, quiet=True)["run_dir"])


def _here(package: str) -> bool:
    from metaforge.optional import OPTIONAL

    (found,) = [each for each in OPTIONAL if each.name == package]
    return not found.missing


def told(run: Path, name: str) -> list[dict]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


# -- csv -----------------------------------------------------------------------------------


def test_csv_has_what_the_run_folder_has(run):
    metrics = told(run, "metrics.jsonl")
    found = lines(run / "metrics.csv")
    assert [int(row["step"]) for row in found] == [record["step"] for record in metrics]
    assert [float(row["validation"]) for row in found] == [r["validation"] for r in metrics]
    records = told(run, "targets.jsonl")
    targets = lines(run / "targets.csv")
    assert len(targets) == len(records) > 0
    for row, record in zip(targets, records, strict=True):
        assert float(row["conditional"]) == record["curves"]["conditional"][-1]
        assert float(row["unconditional"]) == record["unconditional"]


def test_csv_of_a_resumed_run_has_everything_once(tmp_path):
    before, after = Csv(CsvOptions()), Csv(CsvOptions())
    before.run_started(tmp_path, laws.RECIPE)
    for target in range(3):
        before.target_evaluated(laws.record(target))
    with (tmp_path / "targets.csv").open("a") as file:
        file.write("3,3,,0.1")  # cut short by the end of the process
    after.run_started(tmp_path, laws.RECIPE)
    after.target_evaluated(laws.record(3))
    after.target_evaluated({**laws.record(2), "unconditional": 0.75})
    found = lines(tmp_path / "targets.csv")
    assert [row["target"] for row in found] == ["0", "1", "2", "3"]
    assert found[2]["unconditional"] == "0.75", "what was told last counts"


def test_csv_takes_columns_that_come_later(tmp_path):
    tracker = Csv(CsvOptions())
    tracker.run_started(tmp_path, laws.RECIPE)
    tracker.meta_step(0, {"validation": 0.5})
    tracker.meta_step(10, {"validation": 0.6, "loss": 1.0})
    tracker.meta_step(20, {"validation": 0.7})
    rows = lines(tmp_path / "metrics.csv")
    assert [row["loss"] for row in rows] == ["", "1.0", ""]
    assert [row["validation"] for row in rows] == ["0.5", "0.6", "0.7"]


def test_a_missing_score_is_left_out():
    record = laws.record(0) | {"curves": {"conditional": [0.5, None]}}
    assert of_target(record) == {"unconditional": 0.4}


# -- tensorboard ---------------------------------------------------------------------------


def test_tensorboard_has_curves_while_the_run_goes_on(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from metaforge_trackers.board import TensorBoard

    (tmp_path / "recipe.yaml").write_text("name: small\n")
    tracker = TensorBoard(TensorBoardOptions())
    tracker.run_started(tmp_path, laws.RECIPE)
    tracker.meta_step(0, {"validation": 0.25})
    tracker.meta_step(10, {"validation": 0.5})
    for target in range(2):
        tracker.target_evaluated(laws.record(target))
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()  # the tracker has not finished
    validation = [(event.step, event.value) for event in read.Scalars("meta-train/validation")]
    assert validation == [(0, 0.25), (10, 0.5)]
    means = [event.value for event in read.Scalars("targets/conditional")]
    assert means == pytest.approx([0.5, 0.51])
    tracker.run_finished(tmp_path, laws.results())
    read.Reload()
    assert [event.step for event in read.Scalars("steps/conditional")] == [0, 5]
    assert read.Scalars("results/gain")[0].value == pytest.approx(0.1)


def test_tensorboard_has_the_run(run):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run / "tensorboard"))
    read.Reload()
    gain = json.loads((run / "results.json").read_text())["difference"]["mean"]
    assert read.Scalars("results/gain")[0].value == pytest.approx(gain, rel=1e-6)
    steps = [record["step"] for record in told(run, "metrics.jsonl")]
    assert [event.step for event in read.Scalars("meta-train/validation")] == steps


# -- mlflow --------------------------------------------------------------------------------


def test_mlflow_has_settings_metrics_and_files(run):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(run.parents[1] / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("metaforge")
    (found,) = client.search_runs([experiment.experiment_id])
    results = json.loads((run / "results.json").read_text())
    assert found.info.run_id == (run / "mlflow.txt").read_text().strip()
    assert found.info.status == "FINISHED"
    assert found.data.params["inner.use"] == SMALL["inner"]["use"]
    assert found.data.metrics["results/gain"] == pytest.approx(results["difference"]["mean"])
    history = client.get_metric_history(found.info.run_id, "target/conditional")
    records = told(run, "targets.jsonl")
    assert [m.value for m in history] == [r["curves"]["conditional"][-1] for r in records]
    files = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert files == {"resolved.yaml", "env.json", "results.json"}


def test_a_resumed_run_goes_on_with_its_mlflow_run(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    from metaforge_trackers.mlflow_runs import Mlflow
    from metaforge_trackers.options import MlflowOptions

    options = MlflowOptions(store=str(tmp_path / "store"), experiment="other")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("resolved.yaml", "env.json", "results.json"):
        (folder / name).write_text("{}")
    for _ in range(2):
        tracker = Mlflow(options)
        tracker.run_started(folder, laws.RECIPE)
        tracker.target_evaluated(laws.record(0))
    tracker.run_finished(folder, laws.results())
    client = MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("other").experiment_id])
    assert found.info.status == "FINISHED"


@pytest.mark.parametrize("package", ["tensorboard", "mlflow"])
def test_a_missing_package_is_told_before_the_run(package, monkeypatch):
    from metaforge import optional

    monkeypatch.setattr(optional, "find_spec", lambda name: None)
    with pytest.raises(
        metaforge.errors.MetaforgeError, match=rf"pip install 'metaforge\[{package}"
    ):
        metaforge.run(SMALL, f"trackers=[{package}]", quiet=True)


# -- laws, and what breaks them ------------------------------------------------------------


class Forgets(Tracker):
    """Fails at the end."""

    def run_finished(self, run_dir, results):
        raise KeyError("gain")


class StartsOnce(Tracker):
    """Cannot go on where a folder is there."""

    def run_started(self, run_dir, recipe):
        (run_dir / "mine").mkdir()


class Answers(Tracker):
    def meta_step(self, step, metrics):
        return metrics


class Meddles(Tracker):
    def target_evaluated(self, record):
        record["curves"].clear()


@pytest.mark.parametrize(
    ("broken", "law", "words"),
    [
        (Forgets, "a whole run", "run_finished: KeyError"),
        (Answers, "a whole run", "nobody hears"),
        (StartsOnce, "a resumed run", "FileExistsError"),
        (Meddles, "arguments untouched", "changed what it was told"),
    ],
)
def test_each_law_rejects_what_breaks_it(broken, law, words):
    (check,) = [each.check for each in laws.tracker_laws(broken) if each.name == law]
    with pytest.raises(AssertionError, match=words):
        check()


def test_the_laws_accept_one_that_only_listens():
    for law in laws.tracker_laws(Tracker):
        law.check()
