"""Few-shot accuracy of features alone: the nearest class mean, on episodes drawn once.

Symbols: E episodes of w ways, s shots and q queries; n images, p features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import DataError
from metaforge.seeding import generator

#: Episodes whose features are gathered at a time.
_BLOCK = 50


@dataclass(frozen=True, eq=False)
class Episodes:
    """``rows`` [E, w, s + q]: the images of each, by class, the first s of them the support."""

    rows: Tensor
    shots: int

    @property
    def told(self) -> dict[str, int]:
        count, ways, each = self.rows.shape
        return {"episodes": count, "ways": ways, "shots": self.shots, "queries": each - self.shots}


def draw(labels: Tensor, count: int, ways: int, shots: int, queries: int, seed: int) -> Episodes:
    """Episodes among the labels [n] (-1 for none), the same for the same seed. Where there are
    fewer classes than ways, or fewer images of a class than rows, all that there are.

    Raises ``DataError`` where fewer than two classes have a shot and a query.
    """
    members = [torch.nonzero(labels == c).flatten() for c in labels[labels >= 0].unique()]
    members = [rows for rows in members if len(rows) > shots]
    if len(members) < 2:
        raise DataError(
            f"validation: {len(members)} classes have more than {shots} images, of two at least an "
            "episode is made: lower validation.shots, or give the validation split more images"
        )
    ways = min(ways, len(members))
    each = min(shots + queries, *map(len, members))
    source = generator(seed, "few shot")

    def episode() -> Tensor:
        chosen = torch.randperm(len(members), generator=source)[:ways].tolist()
        return torch.stack([_some(members[c], each, source) for c in chosen])

    return Episodes(torch.stack([episode() for _ in range(count)]), shots)


def _some(rows: Tensor, count: int, source: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=source)[:count]]


@torch.no_grad()
def accuracy(features_of: Callable[[Tensor], Tensor], episodes: Episodes) -> Tensor:
    """[E] float64: the share of an episode's queries that are nearest, by cosine, to the mean of
    their own class's support; features are brought to length 1 first.

    ``features_of`` gives the features [k, p] of rows [k], which each image is asked for once.
    """
    asked, where = episodes.rows.unique(return_inverse=True)
    features = F.normalize(features_of(asked), dim=-1)
    found = []
    for some in where.to(features.device).split(_BLOCK):
        x = features[some]
        means = F.normalize(x[:, :, : episodes.shots].mean(2), dim=-1)
        scores = torch.einsum("ewqp,ecp->ewqc", x[:, :, episodes.shots :], means)
        truth = torch.arange(some.shape[1], device=scores.device)[:, None]
        found.append((scores.argmax(-1) == truth).double().mean((1, 2)))
    return torch.cat(found).cpu()
