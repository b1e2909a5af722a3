"""Names of arms, and which arm each control is a control of; torch-free, unlike ``arms``."""

from __future__ import annotations

CONDITIONAL = "conditional"
WITHOUT_TARGET = "_without_target"
SP_WITHOUT_TARGET = "sp" + WITHOUT_TARGET


def compared_with(control: str) -> str:
    """The arm that a control is a control of."""
    return SP_WITHOUT_TARGET if control.endswith(WITHOUT_TARGET) else CONDITIONAL
