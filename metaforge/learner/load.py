"""``metaforge.load``: what a folder holds, loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.learner.learner import Learner
from metaforge.suggest import did_you_mean

if TYPE_CHECKING:
    from metaforge.adapted import Adapted

#: The shipped bundles, a folder each.
SHIPPED = Path(__file__).parents[1] / "bundles"
#: The file that tells what a folder is, and a folder of a run that holds its bundle.
BUNDLE, MODEL, RUN, OWN = "bundle.json", "model.json", "resolved.yaml", "bundle"


def load(
    source: str | Path, *, context: Context | None = None, device: str | None = None
) -> Learner | Adapted:
    """The learner, or adapted model, of a folder; see ``metaforge.load``."""
    path = find(source)
    if (path / MODEL).is_file():
        from metaforge.adapted import load as load_adapted

        return load_adapted(path, context=context, device=device)
    return load_learner(path, context=context, device=device)


def load_learner(
    source: str | Path, *, context: Context | None = None, device: str | None = None
) -> Learner:
    """The learner of a run's folder, a bundle's, or the name of a shipped one."""
    path = find(source)
    context = context or Context()
    if (path / MODEL).is_file():
        raise DataError(
            f"{path}: an adapted model, which is not adapted again; give the run or bundle that it "
            "was made of, or predict with it: metaforge predict"
        )
    if (path / RUN).is_file() and not (path / OWN / BUNDLE).is_file():
        from metaforge.learner.runs import from_run

        return from_run(path, context, device)
    from metaforge.learner.bundles import from_bundle

    return from_bundle(path if (path / BUNDLE).is_file() else path / OWN, context, device)


def find(source: str | os.PathLike[str]) -> Path:
    """The folder that ``source`` means. ``DataError`` where it is none of a learner or model."""
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            "a learner is the folder of a run or bundle, or the name of a shipped bundle; found "
            f"{type(source).__name__}"
        )
    path = Path(source).expanduser()
    if any((path / name).is_file() for name in (BUNDLE, MODEL, RUN)):
        return path
    names = shipped()
    if str(source) in names:
        return SHIPPED / str(source)
    what = "holds none of them" if path.exists() else "no such folder"
    raise DataError(
        f"{source}: {what}; expected a run ({RUN}), a bundle ({BUNDLE}), an adapted model "
        f"({MODEL}), or the name of a shipped bundle ({', '.join(names) or 'none'})"
        f"{did_you_mean(str(source), names)}"
    )


def shipped() -> list[str]:
    """The names of the shipped bundles."""
    return sorted(file.parent.name for file in SHIPPED.glob(f"*/{BUNDLE}"))
