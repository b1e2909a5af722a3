"""docs/results.md: the words of ``studies/results.md`` with tables and plots in their places."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import pages
from metaforge.arm_names import SP_WITHOUT_TARGET, WITHOUT_TARGET
from metaforge.errors import DataError
from metaforge.records import write_atomic
from metaforge.report.format import interval, number
from studies import plan, plots
from studies.figures import difference, ratio, recalled, scores, share
from studies.plan import Cell
from studies.runs import ROOT, Runs

WORDS = ROOT / "studies" / "results.md"
PAGE = ROOT / "docs" / "results.md"
#: (a) to (g), in the order in which the method lists them.
_CONTROLS = (
    *("unconditional", "uniform_bank", "random_m", "topm_equal", "target_only"),
    *("uncertainty", "oracle"),
)
_PLACE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)


def write(runs: Runs, page: Path = PAGE) -> None:
    """Write the page and its plots.

    ``KeyError`` for a place that nothing fills; ``DataError`` where no run is there, which would
    leave the words of a page without its tables.
    """
    if not any(runs.found(cell) for cell in plan.every()):
        raise DataError(
            f"{runs.folder}: holds no finished run of the plan, so that {page} stays as it is; "
            "make results makes them, --out names the folder of others"
        )
    text = WORDS.read_text(encoding="utf-8")
    page.parent.mkdir(parents=True, exist_ok=True)
    filled = _PLACE.sub(lambda match: _PARTS[match[1]](runs, page.parent), text)
    write_atomic(page, filled.encode())


def headline(runs: Runs, folder: Path) -> str:
    """SP and the oracle over the control of equal cost, on every data set."""
    header = ["data", "n", "J = 0", "SP", "SP - (J = 0)", "SP - random M", "oracle - random M"]
    rows = [[*header, "share of the oracle's gain, %", "own group recalled"]]
    for name, title in plan.DATA.items():
        found = runs.found(Cell(name, plan.own_learner(name)))
        scale = _scale(name)
        own, control, best = (scores(found, a) for a in ("conditional", "random_m", "oracle"))
        start = scores(found, "unconditional")
        rows.append(
            [
                title,
                str(len(own)),
                _mean(start, scale),
                _mean(own, scale),
                _shown(difference(own, start), scale),
                _shown(difference(own, control), scale),
                _shown(difference(best, control), scale),
                _whole(share(own, best, control)),
                _percent(recalled(found)),
            ]
        )
    return _table(rows)


def controls(runs: Runs, folder: Path) -> str:
    """SP less each control, a row a learner and data set."""
    rows = [["data", "learner", "n", "SP", *(f"SP - {_arm(arm)}" for arm in _CONTROLS)]]
    for cell in plan.learners():
        found, scale = runs.found(cell), _scale(cell.data)
        own = scores(found, "conditional")
        against = [_shown(difference(own, scores(found, arm)), scale) for arm in _CONTROLS]
        rows.append([cell.data, cell.learner, str(len(own)), _mean(own, scale), *against])
    return _table(rows)


def without_target(runs: Runs, folder: Path) -> str:
    """The same without the target term: what selection does by itself."""
    arms = ("uniform_bank", "random_m", "topm_equal")
    header = ["data", "learner", "n", "SP - (J = 0)", *(f"SP - {_arm(arm)}" for arm in arms)]
    rows = [header]
    for cell in plan.learners():
        found, scale = runs.found(cell), _scale(cell.data)
        own = scores(found, SP_WITHOUT_TARGET)
        if found and not own:
            continue
        gain = _shown(difference(own, scores(found, "unconditional")), scale)
        against = [
            _shown(difference(own, scores(found, arm + WITHOUT_TARGET)), scale) for arm in arms
        ]
        rows.append([cell.data, cell.learner, str(len(own)), gain, *against])
    return _table(rows)


def regression(runs: Runs, folder: Path) -> str:
    """Mean squared errors as ratios to the control's."""
    found = runs.found(Cell("sinusoids", plan.own_learner("sinusoids")))
    rows = [["mean squared error of SP, as a share of that of", "share", "n"]]
    for own, arm in (
        ("conditional", "unconditional"),
        ("conditional", "random_m"),
        ("conditional", "oracle"),
        ("conditional", "target_only"),
        (SP_WITHOUT_TARGET, "random_m" + WITHOUT_TARGET),
    ):
        got = ratio(scores(found, own), scores(found, arm))
        name = _arm(arm) + (", both without target term" if own == SP_WITHOUT_TARGET else "")
        rows.append([name, _shown(got, 1.0, sign=False), str(got["n"]) if got else ""])
    return _table(rows)


def signatures(runs: Runs, folder: Path) -> str:
    """SP with each signature: over random M, over the recipes' own signature, what it recalls."""
    data = plan.COMPARED
    control, usual = (scores(runs.found(Cell(data)), arm) for arm in ("random_m", "conditional"))
    header = ["signature", "n", "SP - random M", f"SP - SP with {plan.SIGNATURE}"]
    rows = [[*header, "own group recalled"]]
    for cell in plan.signatures():
        found = runs.found(cell)
        own = scores(found, "conditional")
        against = "" if own == usual else _shown(difference(own, usual), 100.0)
        gain = _shown(difference(own, control), 100.0)
        rows.append([cell.signature, str(len(own)), gain, against, _percent(recalled(found))])
    return _table(rows)


def steps(runs: Runs, folder: Path) -> str:
    """Plot and table of every arm's gain over J = 0 against J."""
    (cell,) = plan.steps()
    found = runs.found(cell)
    if not found:
        return _MISSING
    plots.over_steps({plan.DATA[cell.data]: found}, folder / "results" / "steps.svg")
    start = scores(found, "unconditional")
    rows = [["J", *(f"{name} - (J = 0)" for name in plots.ARMS.values())]]
    for step in found[0].records[0]["steps"][1:]:  # the first is J = 0
        gains = [difference(scores(found, arm, step), start) for arm in plots.ARMS]
        rows.append([str(step), *(_shown(gain, 100.0) for gain in gains)])
    return f"![gain over J = 0 against steps](results/steps.svg)\n\nn = {len(start)}\n\n" + _table(
        rows
    )


def banks(runs: Runs, folder: Path) -> str:
    """Plot and table of the gain against N."""
    found = {size: runs.found(cell) for size, cell in zip(plan.BANKS, plan.banks(), strict=True)}
    there = {size: got for size, got in found.items() if got}
    if not there:
        return _MISSING
    plots.over_bank(there, folder / "results" / "bank.svg")
    header = ["N", "n", "SP - random M", "oracle - random M", "SP - oracle"]
    rows = [[*header, "own group recalled"]]
    for size, got in there.items():
        own, control, best = (scores(got, a) for a in ("conditional", "random_m", "oracle"))
        rows.append(
            [
                str(size),
                str(len(own)),
                _shown(difference(own, control), 100.0),
                _shown(difference(best, control), 100.0),
                _shown(difference(own, best), 100.0),
                _percent(recalled(got)),
            ]
        )
    return "![gain over random M against N](results/bank.svg)\n\n" + _table(rows)


def made_by(runs: Runs, folder: Path) -> str:
    """How many runs there are, by which code, and the command of each."""
    cells = list(plan.every())
    found = [run for cell in cells for run in runs.found(cell)]
    versions = sorted({run.engine[:12] for run in found})
    wanted = len(cells) * len(plan.SEEDS)
    lines = [
        f"{len(found)} of {wanted} runs are there (seeds {', '.join(map(str, plan.SEEDS))}), made "
        f"by the engine's code of digest {', '.join(versions) or 'none'} (`engine_digest` in a "
        "run's env.json). Each is one of",
        "",
        "```",
        *(cell.command for cell in cells),
        "```",
    ]
    return "\n".join(lines)


def speed(runs: Runs, folder: Path) -> str:
    """The benchmarks' table, in the place that ``python -m benchmarks --write`` fills too."""
    text = pages.speed(json.loads(pages.MEASURED.read_text()))
    return pages.put("speed", text, "<!-- speed: begin --><!-- speed: end -->")


_MISSING = "(not yet measured)"
_PARTS: dict[str, Callable[[Runs, Path], str]] = {
    "headline": headline,
    "controls": controls,
    "without_target": without_target,
    "regression": regression,
    "signatures": signatures,
    "steps": steps,
    "banks": banks,
    "speed": speed,
    "made_by": made_by,
}


def _arm(name: str) -> str:
    """An arm in words."""
    name = name.removesuffix(WITHOUT_TARGET)
    return "(J = 0)" if name == "unconditional" else name


def _scale(data: str) -> float:
    return 1.0 if data == "sinusoids" else 100.0


def _mean(found: dict[Any, float], scale: float) -> str:
    return number(sum(found.values()) / len(found), scale) if found else ""


def _shown(figure: dict[str, Any] | None, scale: float, *, sign: bool = True) -> str:
    if figure is None:
        return ""
    ends = interval(figure["ci95"], scale, sign=sign)
    return f"{number(figure['mean'], scale, sign=sign)} [{ends}]"


def _whole(figure: dict[str, Any] | None) -> str:
    """A share in whole percent, as far as such intervals tell."""
    if figure is None:
        return ""
    mean, low, high = (f"{100 * value:.0f}" for value in (figure["mean"], *figure["ci95"]))
    return f"{mean} [{low} .. {high}]"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _table(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *body))
