"""The noise of LEO's training mode: samples of codes and weights, and dropout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch

#: Normal numbers come in blocks of this many on a CPU; a task takes whole blocks.
_BLOCK = 16


@dataclass(frozen=True)
class Noise:
    """What makes a training step a function of its inputs; None where nothing is random.

    latents       [B, S, l]        standard normal, for the code of each support row
    decoder       [B, C, S, E]     standard normal, for each of C = steps + 1 decoder calls

    Of dropout, the factor of each input entry, 0 or 1 / (1 - rate):

    dropout_encoder  [B, S, E]     of what the encoder sees
    dropout_support  [B, P, S, E]  of what each of P predictions on the support sees
    dropout_query    [B, Q, E]     of what the prediction on the queries sees
    """

    latents: Tensor
    decoder: Tensor
    dropout_encoder: Tensor | None = None
    dropout_support: Tensor | None = None
    dropout_query: Tensor | None = None


@dataclass(frozen=True)
class NoiseShape:
    """The sizes of ``Noise``'s arrays, at most, and the dropout rate."""

    rows: int
    queries: int
    latents: int
    width: int
    decoder_calls: int
    predictions: int
    dropout_rate: float

    def draw(
        self, generator: torch.Generator, n_tasks: int, device: str, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """The arrays of ``Noise`` by name. Task b's do not depend on how many tasks there are
        (on a CPU)."""
        normals, bits = _streams(generator, torch.device(device))
        parts = {
            "latents": (self.rows, self.latents),
            "decoder": (self.decoder_calls, self.rows, self.width),
        }
        size = sum(map(math.prod, parts.values()))
        padded = _BLOCK * math.ceil(size / _BLOCK)
        normal = torch.randn(n_tasks, padded, generator=normals, device=device, dtype=dtype)
        drawn = _split(normal, parts)
        if self.dropout_rate:
            drawn |= self._dropout(bits, n_tasks, dtype)
        return drawn

    def _dropout(
        self, stream: torch.Generator, n_tasks: int, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Factors from 16 random bits an entry: a quarter of the time that one uniform
        number an entry takes, and a rate that is right to 1e-5."""
        parts = {
            "dropout_encoder": (self.rows, self.width),
            "dropout_support": (self.predictions, self.rows, self.width),
            "dropout_query": (self.queries, self.width),
        }
        words = math.ceil(sum(map(math.prod, parts.values())) / 4)
        bits = torch.empty(n_tasks, words, dtype=torch.int64, device=stream.device)
        bits.random_(-(2**63), None, generator=stream)
        least = round(self.dropout_rate * 2**16) - 2**15
        kept = (bits.view(torch.int16) >= least).to(dtype)
        return _split(kept.div_(1 - self.dropout_rate), parts)

    def read(self, noise: Mapping[str, Tensor] | None, tasks: TaskBatch) -> Noise:
        """Noise for a batch, from ``draw`` or given: checked and cut to the batch's rows.

        Support rows may be given as ``[N, K]``, class by class, in the place of S.
        Raises ``PluginError`` if an array is missing or too small.
        """
        needed = ["latents", "decoder"]
        if self.dropout_rate:
            needed += ["dropout_encoder", "dropout_support"]
            needed += ["dropout_query"] * (tasks.query_x is not None)
        given = noise or {}
        if missing := [name for name in needed if name not in given]:
            raise PluginError(
                f"leo: training needs noise, and {', '.join(missing)} is missing; give what "
                "draw_noise(generator, n_tasks) returns"
            )
        return Noise(**{name: self._fit(name, given[name], tasks) for name in needed})

    def _fit(self, name: str, value: Tensor, tasks: TaskBatch) -> Tensor:
        """An array with its rows, the last axis but one, cut to those of the batch."""
        side = tasks.query_x if name == "dropout_query" else tasks.support_x
        assert side is not None
        calls = {"decoder": (self.decoder_calls,), "dropout_support": (self.predictions,)}
        width = self.latents if name == "latents" else self.width
        expected = (len(tasks), *calls.get(name, ()), side.shape[1], width)
        found = value.flatten(len(expected) - 2, -2) if value.ndim > len(expected) else value
        *lead, rows, last = found.shape
        if (*lead, last) != (*expected[:-2], width) or rows < side.shape[1]:
            raise PluginError(
                f"leo: noise {name!r} has shape {list(value.shape)}, and the batch needs "
                f"{list(expected)}; draw_noise serves tasks of the shape that init was given"
            )
        return found[..., : side.shape[1], :]


def _split(flat: Tensor, parts: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """{name: [B, *shape]}: views of flat [B, n], one after another; the rest is left over."""
    found, start = {}, 0
    for name, shape in parts.items():
        stop = start + math.prod(shape)
        found[name] = flat[:, start:stop].unflatten(1, shape)
        start = stop
    return found


def _streams(
    generator: torch.Generator, device: torch.device
) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on the device, seeded from one: numbers drawn there need no transfer, and
    those of the second do not depend on how many the first has drawn."""
    seeds = torch.randint(2**62, (2,), generator=generator, device=generator.device).tolist()
    first, second = (torch.Generator(device).manual_seed(seed) for seed in seeds)
    return first, second
