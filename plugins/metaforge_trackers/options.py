"""Options of the trackers. Torch-free."""

from __future__ import annotations

from pydantic import Field

from metaforge.options import Options


class CsvOptions(Options):
    """None: the files are metrics.csv and targets.csv of the run's folder."""


class TensorBoardOptions(Options):
    folder: str = Field(
        "tensorboard", min_length=1, description="of the event files, within the run's folder"
    )


class MlflowOptions(Options):
    store: str = Field(
        "mlruns",
        min_length=1,
        description="where MLflow keeps runs: a folder, relative to the working folder, or any "
        "address that MLflow takes (sqlite:///mlflow.db, http://...)",
    )
    experiment: str = Field("metaforge", min_length=1, description="the experiment of the run")
