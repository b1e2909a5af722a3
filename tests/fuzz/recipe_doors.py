"""Recipes and overrides: valid ones, and what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from metaforge.errors import RecipeError
from metaforge.recipe import load
from metaforge.recipe.find import find_recipe
from tests.fuzz.door import Files


def recipes(folder: Path) -> list[Files]:
    names = ("sp_ls", "sp_maml_sinusoids", "sp_ls_mixture", "sp_maml_conv4")
    texts = [find_recipe(name).read_bytes() for name in names]
    aliased = (
        b"name: a\ndata: {use: sinusoids, shots: &n 5, queries: *n}\ninner: {use: maml}\n"
        b"select:\n  grid: {weighting.lambda: [1e-4, 1e-2]}\n  targets: 9\n"
    )
    complete = load("sp_maml_sinusoids", check=False).to_yaml().encode()
    return [{"recipe.yaml": text} for text in (*texts, aliased, complete)]


def recipe(folder: Path) -> None:
    _loaded(folder / "recipe.yaml")


def _loaded(source: Path | str, overrides: Sequence[str] = ()) -> None:
    """What a component's check raises, the recipe tells as the plugin's fault: it is ours."""
    try:
        load(source, overrides)
    except RecipeError as error:
        for problem in error.problems:
            assert not ("failed: " in problem.message and problem.code == 4), str(problem)
        raise


_OVERRIDES = (
    *("condition.steps=50", "weighting.use=uniform", "kernel={use: laplace}", "name=a"),
    *("select.grid.weighting.lambda=[1, 2]", "weighting.lambda=1e-4", "seed=3"),
    *("data.shots=2", "trackers=[{use: csv}]", "evaluate.controls=[random_m]", "output=runs"),
    *("weighting.lambda=validate", "data={use: sinusoids, shots: 2}", "bank.size=900"),
)


def overrides(folder: Path) -> list[Files]:
    return [{"overrides.txt": f"{text}\n{_OVERRIDES[0]}".encode()} for text in _OVERRIDES]


def override(folder: Path) -> None:
    text = (folder / "overrides.txt").read_bytes().decode(errors="surrogateescape")
    _loaded("sp_ls", text.split("\n"))
