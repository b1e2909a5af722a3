"""Plugins are isolated: what one does wrong stays with it, and is named."""

from __future__ import annotations

import sys

import pytest

from metaforge.errors import PluginError, Problem
from metaforge.hookspecs import hookimpl
from metaforge.plugins import REGISTRATION, PluginRecord

HEADER = """
from pathlib import Path
from metaforge.components import Component
from metaforge.options import Options
from metaforge.errors import Problem
from metaforge.hookspecs import hookimpl
"""

GOOD = (
    HEADER
    + """
@hookimpl
def metaforge_models():
    return [Component("model", "good", "somewhere:Model")]
"""
)


def a_model(**changes: str) -> str:
    arguments = {"kind": "'model'", "name": "'m'", "target": "'a.b:C'"} | changes
    listed = ", ".join(f"{key}={value}" for key, value in arguments.items())
    return f"@hookimpl\ndef metaforge_models():\n    return [Component({listed})]\n"


BROKEN = {
    "import": ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    "syntax": ("def f(:", "SyntaxError"),
    "exit": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "misspelled": (
        "@hookimpl\ndef metaforge_datsets(): return []",
        "unknown hook 'metaforge_datsets'; did you mean 'metaforge_datasets'?",
    ),
    "specname": (
        "@hookimpl(specname='metaforge_modles')\ndef f(): return []",
        "unknown hook 'metaforge_modles'; did you mean 'metaforge_models'?",
    ),
    "unmarked": (
        "def metaforge_models(): return []",
        "metaforge_models is not marked with @metaforge.hookimpl",
    ),
    "no hooks": ("x = 1", "it implements no hook"),
    "argument": ("@hookimpl\ndef metaforge_models(what): return []", "what"),
    "wrapper": (
        "@hookimpl(wrapper=True)\ndef metaforge_models(): return (yield)",
        "metaforge_models is a wrapper",
    ),
    "raises": ("@hookimpl\ndef metaforge_models(): 1 / 0", "ZeroDivisionError"),
    "returns None": ("@hookimpl\ndef metaforge_models(): pass", "returned None, not a list"),
    "returns one": (
        "@hookimpl\ndef metaforge_models(): return Component('model', 'm', 'a:b')",
        "not a list of Components",
    ),
    "returns text": ("@hookimpl\ndef metaforge_models(): return ['m']", "'m' among its Components"),
    "other kind": (a_model(kind="'dataset'"), "a dataset 'm', expected kind 'model'"),
    "newer api": (a_model(api="2"), "this metaforge serves 1: a newer metaforge serves it"),
    "older api": (a_model(api="0"), "interface 0, and this metaforge serves 1: the plugin needs"),
    "odd name": (a_model(name="'a:b'"), "a name is letters, digits"),
    "no target": (a_model(target="'a.b.C'"), "'a.b.C' is not of the form 'module:attribute'"),
    "no check": (a_model(check="'check'"), "'check' is not of the form 'module:attribute'"),
    "groups' form": (a_model(groups="'yes'"), "'yes' is not of the form 'module:attribute'"),
    "options' form": (a_model(options="'Model'"), "'Model' is not of the form 'module:attribute'"),
    "no options": (a_model(options="dict"), "must be a subclass of metaforge.options.Options"),
    "open options": (
        "class Open(Options):\n    model_config = {'extra': 'allow'}\n" + a_model(options="Open"),
        "must forbid unknown keys",
    ),
    "use": (
        "class Use(Options):\n    use: int = 1\n" + a_model(options="Use"),
        "no option can be named 'use'",
    ),
    "twice": (
        "@hookimpl\ndef metaforge_models(): return 2 * [Component('model', 'm', 'a:b')]",
        "model 'm' twice",
    ),
    "no folder": (
        "@hookimpl\ndef metaforge_recipes(): return [Path('/no/such/folder')]",
        "among its folders (as Paths)",
    ),
    "bad command": (
        "@hookimpl\ndef metaforge_add_commands(cli): cli.add_command('run')",
        "AttributeError",
    ),
}


@pytest.mark.parametrize(("source", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_plugin_is_rolled_back_and_the_rest_works(site, source, reason):
    # Components that a plugin registers before it fails must go with it.
    before = a_model(name="'half'").replace("models", "backbones").replace("'model'", "'backbone'")
    site.plugin("bad", HEADER + before * (source.startswith("@")) + source)
    site.plugin("good", GOOD)
    host = site.host()
    bad, good = host.plugins
    assert (bad.state, bad.components, bad.hooks) == ("failed", (), ())
    assert reason in bad.reason
    assert "\n" not in bad.reason
    assert good.state == "loaded"
    assert [component.name for component, _ in host.components()] == ["good"]


OPTIONS = """
import pydantic
from metaforge.options import Options

class Open(Options):
    model_config = {"extra": "allow"}

class Use(Options):
    use: int = 1

class Foreign(pydantic.BaseModel):
    pass
"""
BAD_OPTIONS = {
    "no module": (
        "no_such_module:A",
        "its options no_such_module:A cannot be imported: ModuleNotFoundError",
    ),
    "no class": ("lazy_options:A", "its options lazy_options:A cannot be imported: AttributeError"),
    "no model": ("lazy_options:pydantic", "must be a subclass of metaforge.options.Options"),
    "foreign": ("lazy_options:Foreign", "must be a subclass of metaforge.options.Options"),
    "open": ("lazy_options:Open", "must forbid unknown keys"),
    "use": ("lazy_options:Use", "no option can be named 'use'"),
}


@pytest.mark.parametrize(("options", "reason"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_named_by_a_string_are_refused_when_they_are_needed(site, options, reason):
    site.module("lazy_options", OPTIONS)
    site.plugin("lazy", HEADER + a_model(options=repr(options)))
    site.plugin("good", GOOD)
    host = site.host()
    assert [plugin.state for plugin in host.plugins] == ["loaded", "loaded"]
    ((lazy, _),) = [offer for offer in host.components() if offer[0].name == "m"]
    with pytest.raises(PluginError, match=reason) as caught:
        _ = lazy.options_model
    assert str(caught.value).startswith("model 'm': ")

    host.check_options()
    good, bad = host.plugins
    assert (bad.state, bad.components, bad.hooks) == ("failed", (), ())
    assert bad.reason == str(caught.value)
    assert good.state == "loaded"
    assert [component.name for component, _ in host.components()] == ["good"]


def test_good_options_named_by_a_string(site):
    site.module("lazy_options", "from metaforge.options import Options\nclass A(Options): pass\n")
    site.plugin("lazy", HEADER + a_model(options="'lazy_options:A'"))
    host = site.host()
    ((component, record),) = host.components()
    assert "lazy_options" not in sys.modules
    host.check_options()
    assert host.components() == ((component, record),)
    assert component.options_model is sys.modules["lazy_options"].A


def test_one_object_under_two_names_loads_once(site):
    site.module("twice", GOOD)
    site.distribution("dist-twice", {"a": "twice", "b": "twice"})
    a, b = site.host().plugins
    assert (a.state, b.state) == ("loaded", "failed")
    assert "same object as plugin 'a' (dist-twice 1.0)" in b.reason


def test_every_kind_has_its_registration_hook():
    from metaforge import hookspecs

    assert all(hasattr(hookspecs, hook) for hook in REGISTRATION)


OBSERVER = (
    HEADER
    + """
seen = []

@hookimpl
def metaforge_meta_step(step, metrics):
    if step == 3:
        raise ValueError("boom")
    seen.append((step, dict(metrics)))

@hookimpl
def metaforge_check_recipe(recipe):
    return [Problem("seed", f"{recipe} is unlucky")]

@hookimpl
def metaforge_report_sections(results):
    return [("Heading", str(results))]
"""
)


def hear(host, hook, **arguments):
    for _, call in host.hearers(hook):
        call(**arguments)


def test_observers_are_called_and_a_failing_one_is_named(site):
    import importlib

    site.plugin("watch", OBSERVER)
    site.plugin("good", GOOD)
    host = site.host()
    hear(host, "metaforge_meta_step", step=1, metrics={"loss": 0.5})
    assert importlib.import_module("plug_watch").seen == [(1, {"loss": 0.5})]
    with pytest.raises(PluginError) as caught:
        hear(host, "metaforge_meta_step", step=3, metrics={})
    assert str(caught.value) == (
        "plugin 'watch' (dist-watch 1.0): metaforge_meta_step(step=3) failed: ValueError: boom"
    )


def test_a_failing_observer_of_targets_names_the_task(site):
    source = "@hookimpl\ndef metaforge_target_evaluated(record): record['absent']\n"
    site.plugin("watch", HEADER + source)
    record = {"task_id": 17, "curves": {}}
    with pytest.raises(PluginError, match=r"metaforge_target_evaluated\(task_id=17\) failed"):
        hear(site.host(), "metaforge_target_evaluated", record=record)


def test_typed_hooks_gather(site):
    site.plugin("watch", OBSERVER)
    host = site.host()
    assert host.problems("13") == [Problem("seed", "13 is unlucky")]
    assert host.report_sections({"a": 1}) == [("Heading", "{'a': 1}")]


@pytest.mark.parametrize("junk", ["'text'", "['text']", "[('a', 'b', 'c')]", "1 / 0"])
def test_a_section_of_the_report_that_fails_is_told_and_the_others_stand(site, junk):
    source = HEADER + f"@hookimpl\ndef metaforge_report_sections(results):\n    return {junk}\n"
    site.plugin("junk", source)
    site.plugin("watch", OBSERVER)
    sections = dict(site.host().report_sections({"a": 1}))
    assert sections.pop("Heading") == "{'a': 1}"
    ((heading, text),) = sections.items()
    assert heading == "A section of plugin 'junk' (dist-junk 1.0) is missing"
    assert "returned" in text or "ZeroDivisionError" in text


@pytest.mark.parametrize("junk", ["'text'", "['text']", "3"])
def test_junk_from_a_check_names_the_plugin(site, junk):
    source = HEADER + f"@hookimpl\ndef metaforge_check_recipe(recipe):\n    return {junk}\n"
    site.plugin("junk", source)
    with pytest.raises(
        PluginError, match=r"'junk'.*: its hook returned .*, not a list of Problems"
    ):
        site.host().problems(None)


def test_recipe_folders_and_commands(site, tmp_path):
    source = HEADER + (
        f"import click\n"
        f"@hookimpl\ndef metaforge_recipes(): return [Path({str(tmp_path)!r})]\n"
        f"@hookimpl\ndef metaforge_add_commands(cli): cli.add_command(click.Command('hello'))\n"
    )
    site.plugin("extra", source)
    host = site.host()
    assert host.recipe_dirs() == (tmp_path,)
    ((record, command),) = host.commands()["hello"]
    assert (record.name, command.name) == ("extra", "hello")


def test_trace_prints_each_call_and_its_result(site, capsys):
    site.plugin("watch", OBSERVER)
    host = site.host(trace=True)
    hear(host, "metaforge_meta_step", step=1, metrics={})
    with pytest.raises(PluginError):
        hear(host, "metaforge_meta_step", step=3, metrics={})
    printed = capsys.readouterr().err
    assert "dist-watch:watch -> metaforge_meta_step(step=1, metrics={})" in printed
    assert "dist-watch:watch <- metaforge_meta_step: []" in printed
    assert "<- metaforge_meta_step: ValueError('boom')" in printed


def test_without_trace_nothing_is_printed(site, capsys):
    site.plugin("watch", OBSERVER)
    hear(site.host(), "metaforge_meta_step", step=1, metrics={})
    assert capsys.readouterr() == ("", "")


def test_a_record_reads_as_name_distribution_and_version():
    assert str(PluginRecord("a", "dist", "1.0", "loaded")) == "plugin 'a' (dist 1.0)"
    assert str(PluginRecord("f", "f.py", "", "loaded")) == "plugin 'f' (f.py)"


def test_hookimpl_is_public():
    import metaforge

    assert metaforge.hookimpl is hookimpl
