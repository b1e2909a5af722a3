"""Small runs that tests of trained learners share; seconds each. Torch-free."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

#: Classes of the data, of which the first 16 train.
CLASSES, ROWS, WIDTH = 26, 12, 6
SPLIT = np.repeat([0, 1, 2], [16, 5, 5])


#: Runs by name: sections of their recipes, and the inner algorithm where it is not the name.
CASES = {
    "ls": {},
    "r2d2": {"kernel": {"use": "gaussian", "phi": "theta_hat"}},
    "maml": {"condition": {"steps": 4, "batch": 3, "top_m": 5, "optimizer_state": "meta-train"}},
    "leo": {"weighting": {"use": "uniform"}},
    "uncertain": {"weighting": {"use": "uncertainty"}},
    "unequal": {"data": {"shots": [1, 3]}},
    "regression": {},
    "transductive": {
        "data": {"x": "images", "normalize": "none"},
        "meta_train": {"steps": 1, "batch": 2, "validation_targets": 2},
        "condition": {"steps": 1, "batch": 2, "top_m": 2},
        "evaluate": {"targets": 2, "workers": 1},
    },
    "images": {"data": {"x": "images", "normalize": "none"}},
    "selected": {"select": {"grid": {"condition.top_m": [4, 16]}, "targets": 3}},
}
INNER = {
    "leo": {"use": "leo", "num_latents": 8, "inner_lr_init": 0.05},
    "uncertain": "ls",
    "unequal": "maml",
    "regression": "maml",
    "images": "ls",
    "transductive": {
        "use": "maml",
        "model": {"use": "conv4", "filters": 2, "norm": "batch", "transductive": True},
        "steps": 1,
    },
    "selected": "ls",
}


def arrays(folder: Path, seed: int = 0) -> Path:
    """An npz file of clustered features, with images of 16 x 16 pixels beside them."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(CLASSES, WIDTH))
    x = np.repeat(means, ROWS, 0) + 0.7 * rng.normal(size=(CLASSES * ROWS, WIDTH))
    images = rng.integers(0, 256, (CLASSES * ROWS, 16, 16))
    path = folder / "data.npz"
    y = np.repeat(np.arange(CLASSES), ROWS)
    np.savez(path, X=x.astype("float32"), images=images.astype("uint8"), y=y, split=SPLIT)
    return path


def recipe(path: Path | None, inner: str | dict = "ls", **sections: Any) -> dict[str, Any]:
    """A classification recipe on ``arrays``, of regression without a path."""
    used: dict[str, Any] = {"use": "sinusoids", "shots": 5, "queries": 10}
    if path is not None:
        used = {"use": "arrays", "path": str(path), "split": "split"}
        used |= {"ways": 3, "shots": 2, "queries": 4, "normalize": "l2"}
    own = {"use": inner} if isinstance(inner, str) else inner
    if own["use"] in ("maml", "learn2learn"):
        own = {"model": {"use": "mlp", "hidden": [16]}, "steps": 2, "lr": 0.1} | own
    return {
        "name": "tiny",
        "data": used | sections.pop("data", {}),
        "inner": own,
        "bank": {"size": 60},
        "meta_train": {"steps": 30, "batch": 4, "validate_every": 10, "validation_targets": 6},
        "condition": {"steps": 5, "batch": 4, "top_m": 8},
        "evaluate": {"targets": 4, "workers": 1},
        **sections,
    }
