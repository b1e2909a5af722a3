"""What large runs cost by a model (``benchmarks.costs.model``), its constants measured here.

``python -m benchmarks.costs [--device cuda] [--write]`` prints the constants, the model held to
what it was not fitted to, and its table; with ``--write``, it puts them into docs/scaling.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace

import torch

from benchmarks import harness
from benchmarks.conditioning import WAYS, WIDTH
from benchmarks.costs import card, constants
from benchmarks.costs.model import Column, Constants, Plan, table
from benchmarks.pages import put
from benchmarks.scaling import PAGE

PLANS = [
    Plan(bank, 10_000, solver)
    for bank, solvers in ((100_000, ("exact", "cg", "nystrom")), (1_000_000, ("cg", "nystrom")))
    for solver in solvers
]


def page(device: Constants) -> str:
    """Markdown: constants, what was held out, and the table of large runs."""
    columns = _columns(device)
    told = ", ".join(f"{key} {value}" for key, value in harness.facts().items())
    plan = PLANS[0]
    setting = (
        f"`{WIDTH}-{WIDTH}` least-squares head, {WAYS}-way {constants.SHOTS}-shot, "
        f"S = {plan.meta_steps:,}, B = {plan.batch}, J = {plan.steps}, signatures of "
        f"{plan.columns} numbers, {plan.landmarks} landmarks, {plan.iterations} iterations of cg. "
        f"Measured on: {told}."
    )
    alone = [_constants(column) for column in columns if column.ranks == 1]
    parts = ["\n".join([_HEADER, *alone]), constants.held_out(device), table(PLANS, columns)]
    return "\n\n".join([*parts, setting])


def _columns(device: Constants) -> list[Column]:
    """This machine, and eight of a card: the one at hand, or one that is estimated."""
    facts = harness.machine()
    if facts["device"] != "cpu":
        total = torch.cuda.get_device_properties(harness.context().device).total_memory
        eight = replace(device, bandwidth=card.BANDWIDTH, latency=card.LATENCY)
        return [
            Column(str(facts["device"]), device, 1, total, True),
            Column(f"8 x {facts['device']}", eight, 8, total, True),
        ]
    known = card.A100
    counted = card.counted(known)
    return [
        Column(f"{facts['cores']} cores", device, 1, float("inf"), False),
        *(Column(f"{n} x {known.name}, estimated", counted, n, known.bytes, True) for n in (1, 8)),
    ]


_HEADER = (
    "| constants | c, a step | a, a task | targets at once | g, a signature | f of K | "
    "f of its factor | f of features | f of solves |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def _constants(column: Column) -> str:
    found = column.device
    cells = [column.name, f"{1e3 * found.call:.3g} ms", f"{1e3 * found.task:.3g} ms"]
    cells += [str(found.together)]
    cells.append(f"{1e6 * found.signature:.3g} us")
    rates = (found.kernel, found.factor, found.basis, found.solve)
    cells += [f"{rate / 1e9:.3g} G/s" for rate in rates]
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.costs", description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    chosen = parser.parse_args(arguments)
    harness.use(chosen.device)
    os.environ["METAFORGE_FACTORS"] = "0"  # a factor that is there already takes no time
    made = page(constants.measured())
    print(made)
    if chosen.write:
        PAGE.write_text(put("costs", made, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
