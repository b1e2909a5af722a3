"""The authors' own scores: signatures, kernel matrix, alphas and top-k sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from metaforge.gram import KernelGram
from metaforge.scoring import keep
from metaforge.tasks import TaskBatch
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions
from metaforge_weightings.options import TasmlOptions
from metaforge_weightings.tasml import Tasml

SHOTS = 5
FILE = Path(__file__).parents[1] / "golden" / "scoring_f64.npz"


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    with np.load(FILE) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


def bank_tasks(golden: dict[str, Tensor]) -> TaskBatch:
    x = golden["emb_train_tasks"]
    y = torch.arange(5)[:, None].expand(x.shape[:3])
    parts = (x[:, :, :SHOTS], y[:, :, :SHOTS], x[:, :, SHOTS:], y[:, :, SHOTS:])
    return TaskBatch(*(part.flatten(1, 2) for part in parts))


@pytest.mark.parametrize(
    ("signature", "expected"), [("all", "train_sig"), ("support", "train_sig_support_only")]
)
def test_signatures_of_bank_tasks(golden: dict[str, Tensor], signature: str, expected: str) -> None:
    kernel = Gaussian(GaussianOptions(signature=signature, gamma=50.0))
    found = kernel.signature(bank_tasks(golden).without_query_labels())
    torch.testing.assert_close(found, golden[expected][:4], rtol=1e-12, atol=1e-15)


def test_signatures_of_targets(golden: dict[str, Tensor]) -> None:
    x = golden["emb_test_support"]
    targets = TaskBatch(x.flatten(1, 2), torch.arange(5).repeat_interleave(SHOTS).expand(5, -1))
    found = Gaussian(GaussianOptions(gamma=50.0)).signature(targets)
    torch.testing.assert_close(found, golden["test_sig_support_only"], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("case", "bank", "targets"),
    [
        ("official", "train_sig", "test_sig"),
        ("supponly", "train_sig_support_only", "test_sig_support_only"),
    ],
)
def test_scores(golden: dict[str, Tensor], case: str, bank: str, targets: str) -> None:
    kernel = Gaussian(GaussianOptions(gamma=50.0))
    gram = KernelGram(kernel, golden[bank])
    cross = kernel.gram(golden[bank], golden[targets])
    torch.testing.assert_close(gram.dense(), golden[f"{case}_K"], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(cross, golden[f"{case}_B"], rtol=1e-12, atol=1e-14)

    weighting = Tasml(TasmlOptions.model_validate({"lambda": 1e-8}))
    state = weighting.fit(gram, torch.full((200,), -1))
    alpha = weighting.weights(state, cross, kernel.diag(golden[targets]))
    torch.testing.assert_close(alpha, golden[f"{case}_alpha"], rtol=1e-6, atol=0)
    # Their condition number is in the 2-norm, which the 1-norm bounds within a factor N.
    found = weighting.report(state)["condition"]
    assert golden[f"{case}_cond"] / 2 < found < 200 * golden[f"{case}_cond"]

    ids, weights = keep(alpha, 20)
    for t in range(5):
        expected = dict(
            zip(
                golden[f"{case}_topk_idx"][t].tolist(),
                golden[f"{case}_topk_weights"][t].tolist(),
                strict=True,
            )
        )
        assert set(ids[t].tolist()) == set(expected)
        for task, weight in zip(ids[t].tolist(), (20 * weights[t]).tolist(), strict=True):
            assert weight == pytest.approx(expected[task], rel=1e-6)
