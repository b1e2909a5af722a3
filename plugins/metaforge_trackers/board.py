"""The TensorBoard tracker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from metaforge.contracts import Tracker
from metaforge_trackers.figures import of_results, of_target


class TensorBoard(Tracker):
    """Scalars: ``meta-train/NAME`` by step; ``targets/ARM``, the mean over the targets so far, by
    their number; ``steps/ARM``, the mean over all targets, by J; ``results/NAME`` at the end.

    Each event is written out at once: ``tensorboard --logdir runs`` shows a run that goes on. A
    resumed run adds a file, and its targets' means are over those that it evaluates itself.
    """

    def run_started(self, run_dir: Path, recipe: Any) -> None:
        self._writer = SummaryWriter(str(run_dir / self.options.folder))
        self._writer.add_text("recipe", "```\n" + (run_dir / "recipe.yaml").read_text() + "\n```")
        self._sums: dict[str, float] = {}
        self._count = 0
        self._writer.flush()

    def meta_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._scalars("meta-train", metrics, step)

    def target_evaluated(self, record: Mapping[str, Any]) -> None:
        self._count += 1
        for arm, value in of_target(record).items():
            self._sums[arm] = self._sums.get(arm, 0.0) + value
        means = {arm: total / self._count for arm, total in self._sums.items()}
        self._scalars("targets", means, record["target"] + 1)

    def run_finished(self, run_dir: Path, results: Mapping[str, Any]) -> None:
        curve = results["curve"]
        for arm, means in curve["mean"].items():
            for steps, mean in zip(curve["steps"], means, strict=True):
                self._writer.add_scalar(f"steps/{arm}", mean, steps)
        self._scalars("results", dict(of_results(results)), results["steps"])
        self._writer.close()

    def _scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()
