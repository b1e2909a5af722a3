"""Trackers: a run's figures as CSV files, in TensorBoard or in MLflow, while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_trackers() -> Sequence[Component]:
    return [
        Component(
            kind="tracker",
            name="csv",
            target="metaforge_trackers.tables:Csv",
            options="metaforge_trackers.options:CsvOptions",
            summary="metrics.csv and targets.csv in the run's folder, a line at a time",
        ),
        Component(
            kind="tracker",
            name="tensorboard",
            target="metaforge_trackers.board:TensorBoard",
            options="metaforge_trackers.options:TensorBoardOptions",
            summary="event files in the run's folder: curves of training, of targets and of J",
            check="metaforge_trackers.needs:tensorboard",
        ),
        Component(
            kind="tracker",
            name="mlflow",
            target="metaforge_trackers.mlflow_runs:Mlflow",
            options="metaforge_trackers.options:MlflowOptions",
            summary="a run of an MLflow experiment: settings, metrics, files",
            check="metaforge_trackers.needs:mlflow",
        ),
    ]
