"""The MLflow tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow.tracking import MlflowClient

from metaforge.contracts import Tracker
from metaforge_trackers.figures import flat, of_results, of_target


class Mlflow(Tracker):
    """A run of an MLflow experiment: the resolved recipe as parameters, metrics of
    meta-training by step and of targets by their number, results, and the run's small files.

    ``mlflow ui --backend-store-uri STORE`` shows it. A metaforge run that is resumed goes on with
    its MLflow run, whose number is kept in ``mlflow.txt`` of the run's folder.
    """

    def run_started(self, run_dir: Path, recipe: Any) -> None:
        store = self.options.store
        if "://" not in store:  # newer versions of MLflow want to be told that a folder is meant
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            store = Path(store).absolute().as_uri()
        self._client = MlflowClient(tracking_uri=store)
        kept = run_dir / "mlflow.txt"
        if kept.exists():
            self._run = kept.read_text().strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        name = self.options.experiment
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=run_dir.name).info.run_id
        kept.write_text(f"{self._run}\n")
        for key, value in flat(recipe.model_dump(mode="json", by_alias=True)):
            self._client.log_param(self._run, key, value)

    def meta_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._metrics("meta-train", metrics, step)

    def target_evaluated(self, record: Mapping[str, Any]) -> None:
        self._metrics("target", of_target(record), record["target"])

    def run_finished(self, run_dir: Path, results: Mapping[str, Any]) -> None:
        self._metrics("results", dict(of_results(results)), results["steps"])
        for name in ("resolved.yaml", "env.json", "results.json"):
            self._client.log_artifact(self._run, str(run_dir / name))
        self._client.set_terminated(self._run)

    def _metrics(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, f"{group}/{name}", value, step=step)
