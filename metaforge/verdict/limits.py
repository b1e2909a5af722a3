"""The rules that name what limits a gain, each with what it compared and one line of advice.

A rule speaks of intervals alone, in the words of ``evidence``. The first rule that holds
decides, in the order of ``_RULES``: what spoils every arm alike comes before what only the
choice of tasks decides, and what is not judged comes last. Steps are said to limit only where
the change that is shown is worth having.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metaforge.statistics import targets_needed
from metaforge.verdict.evidence import (
    excluded,
    loss_shown,
    misses_group,
    sees_group,
    shown,
    size,
    told,
    with_controls,
    worth_shown,
)
from metaforge.verdict.findings import Findings

#: Share of targets without a bank task of their group from which on the bank is said to lack them.
MOST_ABSENT = 0.5
#: A measured gain below this share of what is worth having is too small to look for; then the
#: targets are told that would show what is worth having.
LEAST_SOUGHT = 0.1
#: Targets whose scatter tells how many would show a gain.
FEWEST = 10


class Limit(NamedTuple):
    """What limits the gain.

    limit    kernel, bank, steps, target term, none, nothing shows, or not judged
    because  what was compared, with its interval
    advice   what to do, one plain sentence
    """

    limit: str
    because: str
    advice: str


def judge(found: Findings) -> Limit:
    """The limit of a run, by the first rule that holds."""
    return next(limit for rule in _RULES if (limit := rule(found)) is not None)


# -- rules, in order -------------------------------------------------------------------


def _nothing_recalled(found: Findings) -> Limit | None:
    if found.recalls:
        return None
    return Limit(
        "not judged",
        "condition.beta1 is 0, so that no bank task has a part in the result",
        "Set condition.beta1 above 0 to learn what recalled tasks add to the target term.",
    )


def _target_term_harms(found: Findings) -> Limit | None:
    gain = found.over_without_target
    if gain is None or not loss_shown(gain):
        return None
    return Limit(
        "target term",
        told("SP over SP without the target term", gain, found),
        "The target term does harm here: lower condition.beta2.",
    )


def _target_term_suffices(found: Findings) -> Limit | None:
    """Worse than the target term alone, or a gain that it takes alone; unless the oracle,
    which recalls better, is better than that."""
    gain = found.over_target_only
    suffices = shown(found.over_start) and excluded(gain, found.worth)
    if gain is None or not (loss_shown(gain) or suffices):
        return None
    if found.oracle is not None and shown(found.oracle.over_target_only):
        return None
    because = told("SP over target_only", gain, found)
    if loss_shown(gain):
        advice = "The target term alone does better than with recalled tasks"
    else:
        because += f", so that a gain of {size(found.worth, found)} is excluded"
        advice = "The target term alone gains as much"
    return Limit(
        "target term",
        because,
        f"{advice}: lower condition.beta1, or bring in bank tasks that add to it.",
    )


def _falling(found: Findings) -> Limit | None:
    """Unless SP does worse than the control, which as many steps do no harm: then it is what is
    recalled."""
    steps, fall = found.steps, found.steps.best_over_last
    if fall is None or not worth_shown(fall, found.worth):
        return None
    if loss_shown(found.over_control) and not loss_shown(found.control_over_start):
        return None
    what = "The gain falls before J" if steps.best else "J = 0 is better than any recorded step"
    return Limit(
        "steps",
        told(f"SP after {steps.best} steps over J = {steps.last}", fall, found),
        f"{what}: take fewer steps or a lower condition.optimizer.lr, chosen on validation "
        "targets (select).",
    )


def _kernel(found: Findings) -> Limit | None:
    if found.oracle is None or not shown(found.oracle.over_sp):
        return None
    because = told("oracle over SP", found.oracle.over_sp, found)
    if not found.ranks:
        return Limit(
            "kernel",
            f"{because}, and this weighting ranks no tasks",
            "Recalling like tasks pays here: take a weighting that ranks them "
            "(weighting.use=tasml).",
        )
    if misses_group(found) and found.recalled is not None:
        own = found.recalled.by_weight
        return Limit(
            "kernel",
            f"{because}; {own['mean']:.0%} of what SP recalls, by weight, is of the target's own "
            "group",
            "Let the kernel see what sets the groups apart: compare other signatures "
            "(--over kernel.embedding=...) and widths (kernel.bandwidth).",
        )
    return Limit(
        "kernel",
        f"{because}, though SP recalls much of the target's own group",
        "Recall more of the group, more evenly: raise condition.top_m or weighting.lambda.",
    )


def _rising(found: Findings) -> Limit | None:
    steps, rise = found.steps, found.steps.last_rise
    if 2 * steps.before < steps.last or not worth_shown(rise, found.worth):
        return None  # recorded too far before J to tell of a rise at J
    return Limit(
        "steps",
        told(f"SP after J = {steps.last} steps over {steps.before}", rise, found),
        "The gain still rises at J: take more steps (condition.steps), chosen on validation "
        "targets (select).",
    )


def _unranked(found: Findings) -> Limit | None:
    if found.ranks:
        return None
    return Limit(
        "not judged",
        "this weighting ranks no tasks, so that kernel and bank do not show",
        "Compare with a weighting that ranks tasks for a target "
        "(metaforge compare ... --over weighting.use=tasml,uniform).",
    )


def _groups_absent(found: Findings) -> Limit | None:
    recalled = found.recalled
    if recalled is None or recalled.absent <= MOST_ABSENT * recalled.grouped:
        return None
    if shown(found.over_control):
        return None
    because = f"{recalled.absent} of {recalled.grouped} targets have no bank task of their group"
    if found.over_control is not None:
        because += f"; {told(f'SP over {found.control}', found.over_control, found)}"
    return Limit(
        "bank",
        because,
        "Bring tasks like the targets into the bank: training classes of their groups, or a "
        "larger bank.size.",
    )


def _bank(found: Findings) -> Limit | None:
    if shown(found.over_control):
        return None
    oracle = found.oracle and found.oracle.over_control
    if oracle and excluded(oracle, found.worth):
        return Limit(
            "bank",
            told(f"oracle over {found.control}", oracle, found),
            f"A gain of {size(found.worth, found)} is excluded even with the target's own group, "
            "so a kernel that sees the group better is no help: bring in sources that differ, or "
            "stay with the unconditional learner.",
        )
    gain = found.over_control
    if gain and excluded(gain, found.worth) and sees_group(found):
        return Limit(
            "bank",
            f"{told(f'SP over {found.control}', gain, found)}, though what SP recalls is of the "
            "target's own group",
            "The kernel finds the group and that gains little: bring in sources that differ, or "
            "stay with the unconditional learner.",
        )
    return None


def _steps_harm(found: Findings) -> Limit | None:
    """A choice that gains over the control, by steps that lose more."""
    gain = found.over_control
    if gain is None or not (shown(gain) and loss_shown(found.over_start)):
        return None
    return Limit(
        "steps",
        f"{told(f'SP over {found.control}', gain, found)}, but "
        f"{told('SP over J = 0', found.over_start, found)}",
        "Choosing tasks gains and the steps lose more: take fewer steps or a lower "
        "condition.optimizer.lr, chosen on validation targets (select), or stay at J = 0.",
    )


def _none(found: Findings) -> Limit | None:
    """SP gains over the control, and the oracle is not shown to be better than SP."""
    if found.oracle is None or found.over_control is None or not shown(found.over_control):
        return None
    oracle = found.oracle.over_sp
    because = (
        f"{told(f'SP over {found.control}', found.over_control, found)}; "
        f"{told('oracle over SP', oracle, found)}"
    )
    if loss_shown(oracle):
        advice = "SP does better than with the target's own group: keep kernel, bank and steps."
    elif oracle["n"] <= (1 - MOST_ABSENT) * found.over_control["n"]:
        return Limit(
            "not judged",
            f"{because} on the {oracle['n']} of {found.over_control['n']} targets that have bank "
            "tasks of their group",
            "What is recalled gains; a bank with more of the targets' groups would tell whether "
            "other tasks gain more.",
        )
    else:
        advice = (
            "SP gains and the oracle is not shown to gain more: keep kernel, bank and steps as "
            "they are."
        )
    return Limit("none", because, advice)


def _recall_harms(found: Findings) -> Limit | None:
    gain = found.over_control
    if gain is None or not loss_shown(gain):
        return None
    return Limit(
        "kernel",
        told(f"SP over {found.control}", gain, found),
        f"What the kernel recalls does worse than {found.control}: compare other signatures "
        "(--over kernel.embedding=...), or raise weighting.lambda.",
    )


def _control_missing(found: Findings) -> Limit | None:
    """No control to say what selection gains, or no oracle to say what more it could."""
    groups = found.recalled is not None and found.recalled.own_group["n"] > 0
    if found.over_control is None:
        because = "no control recalls tasks at random"
        names = ("random_m", "oracle") if groups else ("random_m",)
    elif shown(found.over_control):
        because = (
            f"{told(f'SP over {found.control}', found.over_control, found)}, but no oracle tells "
            "what more there is"
        )
        names = ("oracle",)
    else:
        return None
    if names == ("oracle",) and not groups:
        return Limit(
            "not judged",
            f"{because}, as no bank task is known to be of a target's group",
            "What is recalled gains; compare signatures (--over kernel.embedding=...) to see "
            "whether other tasks gain more.",
        )
    return Limit(
        "not judged",
        because,
        "Add controls to see whether kernel or bank limits the gain: "
        f"{with_controls(found, *names)}.",
    )


def _nothing_shows(found: Findings) -> Limit:
    """The last rule: no gain over the control is shown, and no loss."""
    gain = found.over_control
    assert gain is not None  # else the rule before holds
    because = f"{told(f'SP over {found.control}', gain, found)}, n = {gain['n']}"
    if excluded(gain, found.worth):
        advice = f"A gain of {size(found.worth, found)} by what this kernel recalls is excluded; "
        if found.recalled is not None and found.oracle is None:
            advice += f"add the oracle to learn why: {with_controls(found, 'oracle')}"
        else:
            advice += "other signatures may recall better (--over kernel.embedding=...)"
    elif gain["sd"] and gain["n"] < FEWEST:
        advice = f"{gain['n']} targets do not tell how many it takes: take {FEWEST} or more"
    elif not gain["sd"]:
        advice = "No interval is defined: take more targets"
        advice += "" if gain["mean"] else ", and a control that is not SP itself"
    else:
        sought = gain["mean"] if gain["mean"] > LEAST_SOUGHT * found.worth else found.worth
        needed = max(targets_needed(sought, gain["sd"]), gain["n"] + 1)
        advice = (
            f"If the true gain is {size(sought, found)}, about {needed:,} targets "
            "(evaluate.targets) show it with 80 % power"
        )
    return Limit("nothing shows", because, f"{advice}.")


_RULES: tuple[Callable[[Findings], Limit | None], ...] = (
    _nothing_recalled,
    _target_term_harms,
    _target_term_suffices,
    _falling,
    _kernel,
    _rising,
    _unranked,
    _groups_absent,
    _bank,
    _steps_harm,
    _none,
    _recall_harms,
    _control_missing,
    _nothing_shows,
)
