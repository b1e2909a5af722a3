"""Which plugins are found, and which of them take part."""

from __future__ import annotations

import sys

import pytest

from metaforge import discovery
from metaforge.discovery import Settings, find_installed, source_hash
from metaforge.errors import PluginError

KERNEL = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", {name!r}, __name__ + ":Kernel")]

class Kernel:
    def __init__(self, options, context):
        self.name = {name!r}
"""


def state(host, name):
    return {plugin.name: plugin.state for plugin in host.plugins}[name]


def test_order_is_builtin_first_then_by_name(site):
    for name in ("zeta", "alpha"):
        site.distribution(name, {"b": "m", "a": "m"})
    site.distribution("metaforge", {"kernels": "m"})
    assert [found.id for found in find_installed()] == [
        "metaforge:kernels",
        "alpha:a",
        "alpha:b",
        "zeta:a",
        "zeta:b",
    ]


def test_unreadable_metadata_hides_no_other_plugin(site):
    site.plugin("good", KERNEL.format(name="good"))
    site.distribution("bad-dist", "[metaforge]\nthis line has no equals sign")
    site.distribution("unrelated", "[console_scripts]\nthis line has no equals sign")
    plugins = {plugin.distribution: plugin for plugin in site.host().plugins}
    assert plugins["dist-good"].state == "loaded"
    assert plugins["bad-dist"].state == "failed"
    assert "entry_points.txt" in plugins["bad-dist"].reason
    assert "unrelated" not in plugins


@pytest.mark.parametrize(
    ("requirement", "reason"),
    [
        ("pydantic>=999", "requires pydantic>=999, but "),
        ("no-such-distribution>=1", "requires no-such-distribution>=1, which is not installed"),
        ("metaforge>=999", "requires metaforge>=999, but "),
        ("this is no requirement", "unreadable requirement"),
    ],
)
def test_version_conflict_fails_the_plugin_unimported(site, requirement, reason):
    site.plugin("late", KERNEL.format(name="late"), requires=["pluggy", requirement])
    (plugin,) = site.host().plugins
    assert plugin.state == "failed"
    assert reason in plugin.reason
    assert "plug_late" not in sys.modules


def test_requirements_that_do_not_apply_are_left_out(site):
    site.plugin(
        "fine",
        KERNEL.format(name="fine"),
        requires=["metaforge>=0.1", "nothing; extra == 'dev'", "nope; python_version < '3'"],
    )
    assert state(site.host(), "fine") == "loaded"


def blocked_by_option(monkeypatch):
    return Settings.from_environment(blocked=["one"])


def blocked_by_full_name(monkeypatch):
    return Settings.from_environment(blocked=["dist-one:one"])


def blocked_by_variable(monkeypatch):
    monkeypatch.setenv("METAFORGE_DISABLE_PLUGINS", "other, one")
    return Settings.from_environment()


def blocked_as_third_party(monkeypatch):
    monkeypatch.setenv("METAFORGE_DISABLE_PLUGINS", "third-party")
    return Settings.from_environment()


def blocked_by_others_only(monkeypatch):
    monkeypatch.setenv("METAFORGE_PLUGINS", "two")
    return Settings.from_environment()


@pytest.mark.parametrize(
    "block",
    [
        blocked_by_option,
        blocked_by_full_name,
        blocked_by_variable,
        blocked_as_third_party,
        blocked_by_others_only,
    ],
)
def test_blocked_plugin_leaves_no_trace(site, monkeypatch, block):
    site.plugin("one", KERNEL.format(name="one"))
    site.plugin("two", KERNEL.format(name="two"), distribution="metaforge")
    discovery.configure(block(monkeypatch))
    from metaforge.plugins import host

    assert state(host(), "one") == "blocked"
    assert state(host(), "two") == "loaded"
    assert [component.name for component, _ in host().components()] == ["two"]
    assert "plug_one" not in sys.modules
    (record,) = [plugin for plugin in host().plugins if plugin.name == "one"]
    assert (record.components, record.hooks, record.source_hash) == ((), (), "")


def test_asking_for_a_name_that_no_plugin_has_is_an_error(site):
    site.plugin("kernel", KERNEL.format(name="k"))
    with pytest.raises(
        PluginError, match=r"kernal: no plugin has this name; did you mean 'kernel'"
    ):
        site.host(only=("kernal",))


UNKNOWN = "no plugin has this name"
BLOCKS = {
    "option": (Settings(blocked=("kernal",)), f"-p no:kernal: {UNKNOWN}; did you mean 'kernel'?"),
    "full name": (
        Settings(blocked=("dist-kernal:kernel",)),
        f"-p no:dist-kernal:kernel: {UNKNOWN}; did you mean 'dist-kernel:kernel'?",
    ),
    "variable": (
        Settings(disabled=("third-party", "kernal")),
        f"METAFORGE_DISABLE_PLUGINS: kernal: {UNKNOWN}; did you mean 'kernel'?",
    ),
    "far": (Settings(disabled=("zzz",)), f"METAFORGE_DISABLE_PLUGINS: zzz: {UNKNOWN}"),
}


@pytest.mark.parametrize(("settings", "line"), BLOCKS.values(), ids=BLOCKS)
def test_blocking_a_name_that_no_plugin_has_is_noted_and_harmless(site, capsys, settings, line):
    site.plugin("kernel", KERNEL.format(name="k"))
    host = site.host(**settings._asdict())
    assert capsys.readouterr() == ("", f"note: {line}\n")
    expected = "blocked" if "third-party" in settings.disabled else "loaded"
    assert state(host, "kernel") == expected


def test_blocking_what_is_there_is_not_noted(site, capsys):
    site.plugin("kernel", KERNEL.format(name="k"))
    site.host(blocked=("kernel", "dist-kernel:kernel"), disabled=("kernel", "third-party"))
    assert capsys.readouterr() == ("", "")


def test_single_file_plugin(site, tmp_path):
    site.packages.append("my_kernel")
    path = tmp_path / "my_kernel.py"
    path.write_text(KERNEL.format(name="mine"))
    host = site.host(files=(path,), only=())
    ((component, plugin),) = host.components()
    assert (plugin.name, plugin.distribution) == ("my_kernel", "my_kernel.py")
    assert component.load()(None, None).name == "mine"
    assert len(plugin.source_hash) == 16


def test_file_is_loaded_beside_named_plugins_only(site, tmp_path):
    site.packages.append("my_kernel")
    path = tmp_path / "my_kernel.py"
    path.write_text(KERNEL.format(name="mine"))
    site.plugin("one", KERNEL.format(name="one"))
    site.plugin("two", KERNEL.format(name="two"))
    host = site.host(files=(path,), only=("one",))
    assert [component.name for component, _ in host.components()] == ["one", "mine"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("absent.py", "no such file"),
        ("absent", "no such file .an installed plugin needs no --plugin"),
        (".", "found a folder"),
        ("not-a-module.py", "'not-a-module.py' is no name of a Python module"),
        ("text.txt", "'text.txt' is no name of a Python module"),
    ],
)
def test_what_is_no_plugin_file_is_refused(site, tmp_path, name, expected):
    for written in ("not-a-module.py", "text.txt"):
        (tmp_path / written).write_text("")
    with pytest.raises(PluginError, match=f"--plugin {tmp_path}.*: {expected}"):
        site.host(files=(tmp_path / name,))


def test_broken_file_is_an_error_since_it_was_asked_for(site, tmp_path):
    path = tmp_path / "my_broken.py"
    path.write_text("import no_such_module")
    with pytest.raises(PluginError, match=r"my_broken\.py: ModuleNotFoundError.*no_such_module"):
        site.host(files=(path,))
    assert "my_broken" not in sys.modules


def test_file_must_not_shadow_a_module(site, tmp_path):
    path = tmp_path / "colorsys.py"
    path.write_text("")
    with pytest.raises(PluginError, match="rename it"):
        site.host(files=(path,))


def test_source_hash_follows_every_file_but_compiled_ones(site):
    site.module("pack/__init__", "")
    source_hash_of = source_hash.__wrapped__
    seen = [source_hash_of("pack")]
    (site.path / "pack" / "weights.bin").write_bytes(b"1")
    seen.append(source_hash_of("pack"))
    (site.path / "pack" / "weights.bin").write_bytes(b"2")
    seen.append(source_hash_of("pack"))
    (site.path / "pack" / "weights.bin").rename(site.path / "pack" / "renamed.bin")
    seen.append(source_hash_of("pack"))
    assert len(set(seen)) == 4
    (site.path / "pack" / "__init__.cpython-311.pyc").write_bytes(b"3")
    assert source_hash_of("pack") == seen[-1]
    assert "pack" not in sys.modules
