"""The runs of the plan: taken from the folder where they are, resumed or made where not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from metaforge import pipeline
from metaforge.comparison.methods import same_results
from metaforge.comparison.runs import FinishedRun, read_runs
from metaforge.errors import DataError, MetaforgeError
from metaforge.recipe import ResolvedRecipe, load
from metaforge.recipe.document import read
from metaforge.records import read_json
from metaforge.run_files import Status
from studies.plan import SEEDS, Cell

ROOT = Path(__file__).parents[1]


class Runs:
    """Finished runs of one folder, by what their recipes compute.

    A run is taken whatever version of the code made it; the page says which versions did.
    """

    def __init__(self, folder: Path, report: Callable[[str], None] = print):
        self.folder, self._report = folder, report
        self._done: dict[str, FinishedRun] = {}
        self._begun: dict[str, Path] = {}
        for path in sorted(folder.glob("*/resolved.yaml")):
            self._note(path.parent)

    def _note(self, path: Path) -> None:
        try:
            recipe = read((path / "resolved.yaml").read_text(encoding="utf-8"), str(path)).data
            state = read_json(path / "status.json", Status)["state"]
            if state == "done":
                (self._done[same_results(recipe)],) = read_runs([path])
            else:
                self._begun[same_results(recipe)] = path
        except (MetaforgeError, OSError, UnicodeDecodeError) as error:
            self._report(f"{path} is left out: {error}")

    def found(self, cell: Cell) -> list[FinishedRun]:
        """The finished runs of a cell, by seed; fewer than the seeds where some are missing."""
        found = [self._done.get(_identity(self._resolved(cell, seed))) for seed in SEEDS]
        return [run for run in found if run is not None]

    def make(self, cell: Cell, seed: int) -> None:
        """The run of a seed, unless it is there."""
        resolved = self._resolved(cell, seed)
        key = _identity(resolved)
        if key in self._done:
            return
        begun = self._begun.get(key)
        try:
            if begun is None:
                raise DataError("none has begun")
            made = pipeline.resume(begun, quiet=True)
        except MetaforgeError:  # of other code, or damaged: from the beginning
            made = pipeline.run(resolved, quiet=True)
        (self._done[key],) = read_runs([Path(made["run_dir"])])

    def _resolved(self, cell: Cell, seed: int) -> ResolvedRecipe:
        changes = [*cell.changes, f"seed={seed}", f"output={self.folder}"]
        return load(ROOT / cell.recipe, changes)


def _identity(resolved: ResolvedRecipe) -> str:
    return same_results(resolved.recipe.model_dump(mode="json", by_alias=True))
