"""A new plugin, as a distribution of its own that works as it is made.

The files of ``templates``: those of ``common``, and the component and options of its kind.
``§{name}`` in them is replaced.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import NamedTuple

from metaforge import __version__
from metaforge.components import API_VERSION
from metaforge.errors import MetaforgeError, UnknownName
from metaforge.plugins import host
from metaforge.suggest import did_you_mean

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


class Scaffold(NamedTuple):
    """What differs between kinds: the hook's word, the component's module, what a ``Component``
    says beside the rest, and how a recipe takes it."""

    kind: str
    module: str
    summary: str
    facts: tuple[str, ...]
    use: str


SCAFFOLDS = {
    "kernel": Scaffold(
        "task_kernel",
        "kernel",
        "1 / (1 + d^2) of the distance between mean support inputs",
        (),
        "sp_maml kernel.use={name}",
    ),
    "weighting": Scaffold(
        "task_weighting",
        "weighting",
        "a softmax of kernel values",
        ("target_specific=True", "learned=False"),
        "sp_maml weighting.use={name}",
    ),
    "inner-algorithm": Scaffold(
        "inner_algorithm",
        "algorithm",
        "nearest class mean in a learned linear map",
        ('tasks=("classification",)', "mixed_precision=False"),
        "sp_ls 'inner={{use: {name}}}'",
    ),
    "dataset": Scaffold(
        "dataset",
        "source:load",
        "classes that are clouds about random centres",
        ('tasks=("classification",)', "groups=False"),
        "sp_ls 'data={{use: {name}}}' 'evaluate.controls=[uniform_bank]'",
    ),
    "backbone": Scaffold(
        "backbone",
        "backbone",
        "means of a grid of patches",
        (),
        "sp_ls data.backbone.use={name}",
    ),
    "model": Scaffold(
        "model",
        "model",
        "a network of one hidden layer with tanh",
        (),
        "sp_maml 'inner.model={{use: {name}}}'",
    ),
    "tracker": Scaffold(
        "tracker",
        "tracker",
        "a line of JSON for every event of a run",
        (),
        "sp_maml 'trackers=[{name}]'",
    ),
}


def scaffold(kind: str, name: str, folder: Path | None = None) -> Path:
    """Write a plugin that brings one component; the folder it is in (``metaforge-NAME``).

    Raises ``UnknownName`` for a kind there is no template of, and ``MetaforgeError`` for a name
    that no module can have and for a folder that is not empty or cannot be written.
    """
    chosen = template(kind)
    if not _NAME.fullmatch(name):
        raise MetaforgeError(
            f"{name!r} is no name for a plugin: expected small letters and digits, with - or _ "
            "between them, such as my-kernel"
        )
    _refuse_taken(chosen.kind, name)
    target = folder or Path(f"metaforge-{name}")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise MetaforgeError(f"{target} exists: nothing is overwritten; say --dir")
        for path, text in _files(chosen, name):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MetaforgeError(f"{target} cannot be written: {error.strerror}") from error
    return target


def template(kind: str) -> Scaffold:
    """That of a kind, however users say it: ``kernel``, ``task_kernel``, ``kernels``."""
    word = kind.removesuffix("s").replace("_", "-").removeprefix("task-")
    if word not in SCAFFOLDS:
        raise UnknownName(
            f"no template for kind {kind!r}{did_you_mean(word, SCAFFOLDS)} "
            f"(there are: {', '.join(SCAFFOLDS)})"
        )
    return SCAFFOLDS[word]


def _refuse_taken(kind: str, name: str) -> None:
    """Two of one name would make every recipe that says it ambiguous."""
    package = f"metaforge_{name.replace('-', '_')}"
    if importlib.util.find_spec(package) is not None:
        raise MetaforgeError(
            f"the plugin's module would be {package}, which is there already, and one would take "
            "the other's place; take another name"
        )
    taken = [plugin for item, plugin in host().components() if item.key == (kind, name)]
    if taken:
        raise MetaforgeError(
            f"{kind} {name!r} is there already, offered by {taken[0]}: recipes could no longer say "
            f"{name!r} alone; take another name"
        )


def _files(chosen: Scaffold, name: str) -> Iterator[tuple[Path, str]]:
    """The path of each file, within the distribution, and what it holds."""
    package = Path("src", f"metaforge_{name.replace('-', '_')}")
    own = _TEMPLATES / chosen.kind.removeprefix("task_")
    places = {
        Path("pyproject.toml"): "common/pyproject.toml",
        Path("README.md"): "common/README.md",
        Path(".github/workflows/test.yml"): "common/test.yml",
        Path("tests/test_laws.py"): "common/test_laws.py",
        package / "__init__.py": "common/__init__.py",
        **{package / path.stem: f"{own.name}/{path.stem}" for path in sorted(own.iterdir())},
    }
    words = _words(chosen, name)
    for path, source in places.items():
        text = (_TEMPLATES / f"{source}.tmpl").read_text(encoding="utf-8")
        yield path, _Placeholders(text).substitute(words)


class _Placeholders(Template):
    """``§{name}``: a sign that neither Python, YAML nor TOML has a use for."""

    delimiter = "§"


def _words(chosen: Scaffold, name: str) -> dict[str, str]:
    module, _, attribute = chosen.module.partition(":")
    camel = "".join(part.capitalize() for part in re.split("[-_]", name))
    major, minor = __version__.split(".")[:2]
    facts = "".join(f"\n            {fact}," for fact in chosen.facts)
    return {
        "dashed": name,
        "name": name.replace("-", "_"),
        "Class": camel,
        "kind": chosen.kind.replace("_", " "),
        "kind_name": chosen.kind,
        "target": f"{module}:{attribute or camel}",
        "summary": chosen.summary,
        "facts": facts,
        "api": str(API_VERSION),
        "version": f"{major}.{minor}",
        "next_version": f"{major}.{int(minor) + 1}",
        "run": f"metaforge run {chosen.use.format(name=name)}",
    }
