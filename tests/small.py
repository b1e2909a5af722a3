"""A recipe that runs in seconds, for tests of whole runs. Torch-free."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"use": "sinusoids", "shots": 5, "queries": 10},
    "inner": {"use": "maml", "model": {"use": "mlp", "hidden": [16]}, "steps": 2, "lr": 0.01},
    "bank": {"size": 200},
    "meta_train": {"steps": 60, "batch": 4, "validate_every": 20, "validation_targets": 10},
    "condition": {"steps": 6, "batch": 4, "top_m": 10},
    "evaluate": {"targets": 12},
}
