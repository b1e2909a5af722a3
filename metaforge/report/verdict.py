"""The verdict of a run as text: at most eight lines, the last of them the advice."""

from __future__ import annotations

from typing import Any

from metaforge.report.format import aligned_pairs, interval, number

Figure = dict[str, Any]


def lines(verdict: dict[str, Any] | None, scale: float) -> list[str]:
    """The block; nothing for a run without verdict. ``scale`` is 100 for accuracies, else 1."""
    return [] if verdict is None else aligned_pairs(said(verdict, scale))


def said(verdict: dict[str, Any], scale: float) -> dict[str, str]:
    """What the verdict says of each thing that it knows."""
    told = {
        "gain of SP" if scale == 1.0 else "gain, points": _gains(verdict, scale),
        "oracle": _oracle(verdict["oracle"], verdict["control"], scale),
        "recalled": _recalled(verdict["recalled"]),
        "weights": _weights(verdict["weights"], verdict["similarity"]),
        "target term": _target_term(verdict, scale),
        "steps": _steps(verdict["steps"], scale),
        "limit": f"{verdict['limit']}: {verdict['because']}",
        "advice": verdict["advice"],
    }
    return {name: text for name, text in told.items() if text}


def _gain(figure: Figure, scale: float) -> str:
    ends = interval(figure["ci95"], scale, sign=True)
    return f"{number(figure['mean'], scale, sign=True)} ({ends})"


def _share(figure: Figure) -> str:
    if figure["ci95"] is None:
        return percent(figure["mean"])
    low, high = figure["ci95"]
    return f"{percent(figure['mean'])} ({percent(low)} .. {percent(high)})"


def percent(value: float) -> str:
    """Whole percent, without a sign of zero."""
    return f"{round(100 * value)}%"


def _gains(verdict: dict[str, Any], scale: float) -> str:
    told = [f"{_gain(verdict['over_start'], scale)} over J = 0"]
    if verdict["over_control"] is not None:
        told.append(f"{_gain(verdict['over_control'], scale)} over {verdict['control']}")
    return f"{', '.join(told)}; positive is better, 95 % CI"


def _oracle(oracle: dict[str, Any] | None, control: str | None, scale: float) -> str:
    if oracle is None:
        return ""
    told = f"{_gain(oracle['over_sp'], scale)} over SP"
    if oracle["over_control"] is None:
        return told
    told = f"{_gain(oracle['over_control'], scale)} over {control}, {told}"
    if oracle["share"] is None:
        return f"{told}; no share of a gain that is not clear of zero"
    return f"{told}; SP has {_share(oracle['share'])} of its gain"


def _recalled(recalled: dict[str, Any] | None) -> str:
    if recalled is None:
        return ""
    told = []
    if recalled["own_group"]["n"]:
        own, chance = _share(recalled["own_group"]), recalled["chance"]["mean"]
        weight = f", {percent(by['mean'])} by weight" if (by := recalled.get("by_weight")) else ""
        told.append(f"{own} of the target's own group{weight}, {chance:.0%} by chance")
    if recalled["absent"]:
        told.append(
            f"no bank task of the group of {recalled['absent']} of {recalled['grouped']} targets"
        )
    return "; ".join(told)


def _weights(weights: dict[str, Any] | None, similarity: float | None) -> str:
    if weights is None:
        return ""
    told = (
        f"effective sample size {weights['effective_sample_size']['mean']:.1f} of "
        f"M = {weights['kept']}; {weights['negative']['mean']:.0%} of all alphas negative"
    )
    if similarity is None:
        return told
    return f"{told}; median similarity of bank tasks {similarity:.3g}"


def _target_term(verdict: dict[str, Any], scale: float) -> str:
    alone, without = verdict["over_target_only"], verdict["over_without_target"]
    told = [f"{_gain(alone, scale)} over target_only"] if alone else []
    told += [f"{_gain(without, scale)} over SP without it"] if without else []
    return f"SP {', '.join(told)}" if told else ""


def _steps(steps: dict[str, Any], scale: float) -> str:
    told = (
        f"best of those recorded {steps['best']}; "
        f"{_gain(steps['last_rise'], scale)} from {steps['before']} to {steps['last']}"
    )
    if steps["best_over_last"] is None:
        return told
    fall = _gain(steps["best_over_last"], scale)
    return f"{told}; {fall}, widened for the choice, at {steps['best']} over {steps['last']}"
