"""Look-up and creation of components."""

from __future__ import annotations

from pathlib import Path

import pytest

import metaforge
from metaforge import discovery, registry
from metaforge.components import Context
from metaforge.discovery import Settings, source_hash
from metaforge.errors import DataError, PluginError, RecipeError
from metaforge.options import Choice

KERNEL = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", "shared", "{target}")]
"""


@pytest.mark.parametrize("kind", ["kernel", "kernels", "task_kernel", "task_kernels"])
def test_kind_may_be_said_as_recipes_do(fakes, kind):
    assert registry.get(kind, "gaussian").kind == "task_kernel"


def test_unknown_kind(fakes):
    with pytest.raises(PluginError, match=r"unknown kind .*'kernal'; did you mean 'kernel'"):
        registry.get("kernal", "gaussian")


@pytest.mark.parametrize(("kind", "name"), [(None, "gaussian"), ("kernel", None), ("kernel", 3)])
def test_what_is_no_text_is_refused(fakes, kind, name):
    with pytest.raises(PluginError, match=r"create: (kind|name) is (None|3), expected a text"):
        metaforge.create(kind, name)


def test_unknown_name_suggests(fakes):
    with pytest.raises(PluginError, match="unknown task_kernel 'gausian'; did you mean 'gaussian'"):
        registry.get("kernel", "gausian")


def test_unknown_name_far_from_all_lists_them(fakes):
    with pytest.raises(PluginError, match=r"there are: gaussian, laplace"):
        registry.get("kernel", "zzz")


def test_unknown_name_tells_of_plugins_that_are_missing(fakes):
    fakes.plugin("late", "import no_such_module")
    fakes.plugin("shut", "")
    discovery.configure(Settings(blocked=("shut",)))
    with pytest.raises(PluginError) as caught:
        registry.get("kernel", "zzz")
    assert "'late' (dist-late 1.0) may have it, but has failed: ModuleNotFound" in str(caught.value)
    assert "'shut' (dist-shut 1.0) may have it, but is blocked by -p no:shut" in str(caught.value)


def test_code_that_is_not_where_its_component_says_names_both(site):
    site.plugin(
        "lost",
        """
        from metaforge.components import Component
        from metaforge.hookspecs import hookimpl

        @hookimpl
        def metaforge_task_kernels():
            return [Component("task_kernel", "lost", "no_such_package.kernel:Lost")]
        """,
    )
    with pytest.raises(PluginError) as caught:
        registry.component_identity(registry.get("kernel", "lost"))
    assert str(caught.value) == (
        "task_kernel 'lost' of plugin 'lost' (dist-lost 1.0): its code should be at "
        "'no_such_package.kernel:Lost', but there is no module 'no_such_package': mend the "
        "target of its Component"
    )


def test_two_distributions_one_name(site):
    for distribution in ("first", "second"):
        source = KERNEL.format(target=f"plug_shared_{distribution}:{distribution}")
        source += f"\ndef {distribution}(options, context):\n    return {distribution!r}\n"
        site.plugin("shared", source, distribution=distribution)
    with pytest.raises(PluginError) as caught:
        registry.get("kernel", "shared")
    for words in ("(first 1.0)", "(second 1.0)", "first:shared or second:shared"):
        assert words in str(caught.value)
    assert metaforge.create("kernel", "second:shared") == "second"
    with pytest.raises(PluginError, match="unknown task_kernel 'third:shared'"):
        registry.get("kernel", "third:shared")
    discovery.configure(Settings(blocked=("first:shared",)))
    assert metaforge.create("kernel", "shared") == "second"


def test_create_passes_options_context_and_nested_components(fakes):
    context = Context(seed=3)
    made = metaforge.create("inner", "maml", context=context, steps=2)
    assert made.options.steps == 2
    assert made.context is context
    assert made.nested["backbone"] is None
    assert made.nested["model"].options.bias is True


@pytest.mark.parametrize(
    "model",
    ["mlp", "fake-dist:mlp", {"use": "mlp"}, Choice(use="mlp")],
    ids=["name", "full name", "mapping", "choice"],
)
def test_nested_component_by_name(fakes, model):
    made = metaforge.create("inner", "maml", model=model, backbone="conv")
    assert made.nested["model"].options.hidden == (64,)
    assert made.nested["backbone"].options.bias is True


def test_nested_options_are_validated(fakes):
    made = metaforge.create("inner", "maml", model={"use": "mlp", "hidden": [8, 8]})
    assert made.nested["model"].options.hidden == (8, 8)
    with pytest.raises(RecipeError, match="model 'mlp': hiden: unknown key; did you mean 'hidden'"):
        metaforge.create("inner", "maml", model={"use": "mlp", "hiden": [8, 8]})


def test_ready_object_is_handed_on_as_it_is(fakes):
    ready = object()
    made = metaforge.create("inner", "maml", model=ready)
    assert made.nested["model"] is ready
    assert made.options.model.use == "<object>"


def test_bad_options_are_all_named(fakes):
    with pytest.raises(RecipeError) as caught:
        metaforge.create("inner", "maml", stpes=3, lr=-1)
    assert str(caught.value).splitlines() == [
        "inner_algorithm 'maml': lr: should be greater than 0; found -1",
        "inner_algorithm 'maml': stpes: unknown key; did you mean 'steps'?",
    ]


def test_paths_start_from_the_context(fakes, tmp_path, monkeypatch):
    monkeypatch.setenv("METAFORGE_DATA", "/data")
    context = Context(base_dir=tmp_path)
    files = ("a.npz", Path("/b.npz"), "$METAFORGE_DATA/c.npz", "${METAFORGE_DATA}/d.npz")
    made = metaforge.create("data", "glyphs", context=context, root="x/../y", files=files)
    assert made.options.root == tmp_path / "y"
    assert list(map(str, made.options.files)) == [
        str(tmp_path / "a.npz"),
        "/b.npz",
        "/data/c.npz",
        "/data/d.npz",
    ]


def test_unset_variable_in_a_path(fakes, monkeypatch):
    monkeypatch.delenv("METAFORGE_NOWHERE", raising=False)
    with pytest.raises(RecipeError, match=r"root: \$METAFORGE_NOWHERE is not set") as caught:
        metaforge.create("data", "glyphs", root="$METAFORGE_NOWHERE/x")
    assert caught.value.exit_code == 3


TARGETS = {
    "missing module": ("no_such_module:x", "no_such_module:x cannot be imported", ""),
    "missing attribute": ("plug_t:absent", "plug_t:absent cannot be imported", ""),
    "raises": (
        "plug_t:f",
        "could not be created: ZeroDivisionError: division by zero",
        "def f(options, context): return 1 / 0",
    ),
}


@pytest.mark.parametrize(("target", "message", "code"), TARGETS.values(), ids=TARGETS)
def test_failing_target_names_component_and_plugin(site, target, message, code):
    site.plugin("t", KERNEL.format(target=target) + code)
    with pytest.raises(PluginError) as caught:
        metaforge.create("kernel", "shared")
    assert "task_kernel 'shared' of plugin 't' (dist-t 1.0)" in str(caught.value)
    assert message in str(caught.value)
    assert caught.value.__cause__ is not None


def test_what_a_target_says_on_purpose_passes(site):
    code = """
from metaforge.errors import DataError
def f(options, context):
    raise DataError("no images in /data")
"""
    site.plugin("t", KERNEL.format(target="plug_t:f") + code)
    with pytest.raises(DataError, match=r"^no images in /data$"):
        metaforge.create("kernel", "shared")


def test_identity_follows_the_code_of_plugin_and_target(fakes):
    component = registry.get("kernel", "gaussian")
    identity = registry.component_identity(component)
    assert identity["distribution"] == "fake-dist"
    assert identity["version"] == "2.1"
    for changed in ("fakeplug.py", "fakeplug_parts.py"):
        path = fakes.path / changed
        path.write_text(path.read_text() + "\n# changed\n")
        source_hash.cache_clear()
        before, identity = identity, registry.component_identity(component)
        assert identity["source"] != before["source"]


def test_a_component_of_no_plugin_has_no_identity(fakes):
    from metaforge.components import Component

    with pytest.raises(PluginError, match="offered by no loaded plugin"):
        registry.component_identity(Component("model", "mine", "a:b"))
