"""Recipes by path, and the shipped ones by name."""

from __future__ import annotations

from pathlib import Path

from metaforge.errors import RecipeError
from metaforge.plugins import host
from metaforge.suggest import did_you_mean

SUFFIX = ".yaml"


def shipped_dir() -> Path:
    """The folder of shipped recipes: in the installed package, or beside it in a source tree."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def shipped_recipes() -> dict[str, list[Path]]:
    """Every shipped recipe by name (``sp_maml``, ``paper/ls``), plugins' recipes included."""
    found: dict[str, list[Path]] = {}
    for folder in (shipped_dir(), *host().recipe_dirs()):
        for path in sorted(folder.rglob(f"*{SUFFIX}")):
            name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
            found.setdefault(name, []).append(path)
    return found


def find_recipe(source: str | Path) -> Path:
    """The file that ``source`` means: a path, or else the name of a shipped recipe.

    ``sp_maml``, ``sp_maml.yaml`` and ``recipes/sp_maml.yaml`` name the shipped recipe
    where no such file exists. Raises ``RecipeError``.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        resolved = path / "resolved.yaml"
        hint = f": say {resolved}" if resolved.is_file() else ""
        raise RecipeError(f"{source} is a folder, not a recipe{hint}")
    name = path.as_posix().removeprefix("./").removeprefix("recipes/").removesuffix(SUFFIX)
    shipped = shipped_recipes()
    found = shipped.get(name, [])
    if len(found) == 1:
        return found[0]
    if found:
        raise RecipeError(
            f"recipe {name!r} is shipped twice, say which: {', '.join(map(str, found))}"
        )
    raise RecipeError(
        f"{source}: no such file, and no shipped recipe of this name{did_you_mean(name, shipped)} "
        "('metaforge ls recipe' lists them)"
    )
