"""In what scores and gains are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from metaforge.report.format import number


@dataclass(frozen=True)
class Unit:
    """Of accuracies (``percent``) or of errors."""

    percent: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Unit:
        """Of a run's results, or of a comparison."""
        return cls(found["metric"].startswith("accuracy"))

    @property
    def scale(self) -> float:
        """What takes scores to the unit that they are shown in."""
        return 100.0 if self.percent else 1.0

    @property
    def sign(self) -> float:
        """What makes an improvement of a difference of scores."""
        return 1.0 if self.percent else -1.0

    def told(self, score: float) -> str:
        """A score with what it is."""
        words = f"{self.score.partition(',')[0]} {number(score, self.scale)}"
        return f"{words} %" if self.percent else words

    def told_gain(self, gain: float) -> str:
        """An improvement with its unit."""
        words = number(gain, self.scale, sign=True)
        return f"{words} points" if self.percent else words

    @property
    def score(self) -> str:
        return "accuracy, %" if self.percent else "mean squared error"

    @property
    def gain(self) -> str:
        """Of improvements: positive is better whatever the metric."""
        return "gain, points" if self.percent else "gain: decrease of the error"
