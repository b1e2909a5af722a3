"""Seals: a digest that a file carries of its own content, so that damage is told when it is read.

An object of JSON has it as its last key, ``seal``, that in a safetensors file's metadata too; a
YAML file in a comment, its last line. As it is in the file itself, both are written at once or
not at all. What has no seal, as from an earlier version, is read as it is: damage to it is not
seen. Damage to the word ``seal`` takes the seal away, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

SEAL = "seal"
_COMMENT = f"# {SEAL}: "


class BrokenSeal(ValueError):
    """The content is not what was sealed."""

    def __init__(self) -> None:
        super().__init__("its content is not what was written there")


class Opened(NamedTuple):
    """What JSON holds without its seal, the same as text, and whether there was a seal."""

    value: Any
    text: str
    sealed: bool


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record and its seal. Raises ``ValueError`` for numbers that are not finite."""
    return {**record, SEAL: _digest(json.dumps(record, allow_nan=False).encode())}


def opened(text: str) -> Opened:
    """JSON, with its seal checked if it has one. Raises ``ValueError`` where it is none, and
    ``BrokenSeal``."""
    value = json.loads(text)
    if not isinstance(value, dict) or SEAL not in value:
        return Opened(value, text, False)
    seal = value.pop(SEAL)
    plain = json.dumps(value)
    if seal != _digest(plain.encode()):
        raise BrokenSeal
    return Opened(value, plain, True)


def sealed_text(text: str) -> str:
    """Lines of text and a comment with their seal."""
    return f"{text}{_COMMENT}{_digest(text.encode())}\n"


def check_text(text: str) -> None:
    """Raises ``BrokenSeal``."""
    content, mark, seal = text.rpartition(_COMMENT)
    if mark and seal.rstrip("\n") != _digest(content.encode()):
        raise BrokenSeal


def of_tensors(tensors: Mapping[str, Tensor], metadata: str) -> str:
    """The seal of named tensors, on the CPU, and of what is said of them."""
    import torch

    digest = hashlib.blake2b(metadata.encode(), digest_size=8)
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
