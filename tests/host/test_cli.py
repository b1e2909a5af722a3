"""The verbs, in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from metaforge.cli import ls, main
from metaforge.cli.app import VERBS
from metaforge.errors import DataError, Interrupted, NumericError
from metaforge.recipe import load

from .conftest import RECIPE


@pytest.fixture
def cli(fakes, tmp_path, monkeypatch, capsys):
    """Call the command line; what it returned and printed."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "fake.yaml").write_text(RECIPE)
    monkeypatch.setattr("metaforge.recipe.find.shipped_dir", lambda: shipped)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return call


class Pipeline(ModuleType):
    """Stands for the pipeline, which needs torch."""

    def __init__(self):
        super().__init__("metaforge.pipeline")
        self.calls, self.result = [], {"conditional": {"mean": 0.5}, "run_dir": "runs/a"}

    def _answer(self, *call):
        self.calls.append(call)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def run(self, resolved, *, quiet=False):
        return self._answer("run", resolved.recipe, quiet)

    def resume(self, path, changes=(), *, quiet=False):
        return self._answer("resume", path, changes, quiet)


@pytest.fixture
def pipeline(monkeypatch):
    import metaforge

    fake = Pipeline()
    monkeypatch.setitem(sys.modules, "metaforge.pipeline", fake)
    monkeypatch.setattr(metaforge, "pipeline", fake, raising=False)
    return fake


def test_run_hands_the_resolved_recipe_to_the_pipeline(cli, pipeline, monkeypatch):
    report = ModuleType("metaforge.report")
    report.render_lines = lambda results, run: [f"table of {results['conditional']}", str(run)]
    monkeypatch.setitem(sys.modules, "metaforge.report", report)
    code, out, err = cli("run", "fake", "seed=3")
    assert (code, out, err) == (0, "table of {'mean': 0.5}\nruns/a\n", "")
    ((verb, recipe, quiet),) = pipeline.calls
    assert (verb, recipe.seed, quiet) == ("run", 3, False)
    assert cli("run", "fake", "--quiet") == (0, "", "")


def test_run_json_prints_the_results_and_nothing_else(cli, pipeline):
    code, out, _ = cli("run", "fake", "--json")
    assert code == 0
    assert json.loads(out) == pipeline.result
    assert pipeline.calls[0][2] is True


def test_resume_reads_no_recipe(cli, pipeline, tmp_path):
    assert cli("run", "--resume", tmp_path, "--quiet")[0] == 0
    assert cli("run", "--resume", tmp_path, "--quiet", "evaluate.workers=1")[0] == 0
    assert pipeline.calls == [
        ("resume", tmp_path, (), True),
        ("resume", tmp_path, ("evaluate.workers=1",), True),
    ]


BAD_USAGE = {
    "no recipe": ["run"],
    "override first": ["run", "seed=3"],
    "resume and recipe": ["run", "--resume", ".", "fake"],
    "resume of nothing": ["run", "--resume", "no/such/folder"],
    "unknown verb": ["rnu"],
    "unknown option": ["run", "--fast"],
    "block without no": ["-p", "kernels", "ls"],
    "block of nothing": ["-p", "no:", "ls"],
    "show nothing": ["show"],
    "show too much": ["show", "a", "b", "c"],
    "show unknown": ["show", "gausian"],
    "list of nothing": ["ls", "kernel", "z*"],
    "list of no kind": ["ls", "foo"],
    "show of no kind": ["show", "foo", "gaussian"],
    "show unknown of a kind": ["show", "kernel", "gausian"],
    "report of nothing": ["report", "no/such/folder"],
    "report without a page, elsewhere": ["report", "--text", "--html", "a.html", "."],
    "report without a page, opened": ["report", "--text", "--open", "."],
}


@pytest.mark.parametrize("words", BAD_USAGE.values(), ids=BAD_USAGE)
def test_bad_usage_exits_2(cli, pipeline, words):
    code, out, err = cli(*words)
    assert code == 2
    assert out == ""
    assert "error: " in err.lower()
    assert pipeline.calls == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu"], "no such command 'rnu'; did you mean 'run'?"),
        (["show", "gausian"], "did you mean 'gaussian'?"),
        (["show", "kernel", "gausian"], "did you mean 'gaussian'?"),
        (["ls", "kernal"], "did you mean 'kernel'?"),
        (["run", "faek"], "did you mean 'fake'?"),
        (["-p", "no:faek", "ls"], "did you mean 'fake'?"),
        (["run", "fake", "--plugin", "mine.py"], "stands before the verb (metaforge --plugin ...)"),
    ],
)
def test_misspelled_words_get_the_nearest(cli, words, hint):
    assert hint in cli(*words)[2]


RAISED = {
    "data": (DataError("no images"), 3, "error: no images\n"),
    "numeric": (NumericError("a NaN"), 5, "error: a NaN\n"),
    "interrupted": (Interrupted("stopped; resume with ..."), 130, "error: stopped; resume"),
    "keyboard": (KeyboardInterrupt(), 130, "interrupted"),
}


@pytest.mark.parametrize(("error", "code", "message"), RAISED.values(), ids=RAISED)
def test_errors_become_messages_and_exit_codes(cli, pipeline, error, code, message):
    pipeline.result = error
    found, _, err = cli("run", "fake")
    assert found == code
    assert message in err
    assert "Traceback" not in err


def test_debug_shows_the_traceback(cli, pipeline, monkeypatch):
    pipeline.result = DataError("no images")
    monkeypatch.setenv("METAFORGE_DEBUG", "1")
    assert "Traceback" in cli("run", "fake")[2]


def test_a_bug_is_not_dressed_up(cli, pipeline):
    pipeline.result = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        cli("run", "fake")


def test_validate_says_what_would_run(cli):
    code, out, err = cli("validate", "fake", "weighting.use=uniform", "inner.model=mlp")
    assert code == 0
    assert err == ""
    assert out.startswith("ok: ")
    for words in (
        "maml (model: mlp)",
        "20 steps of 8 of the top 50",
        "100 test targets",
        "kernel.gamma",
        "note: override 'weighting.use=uniform' drops weighting.lambda",
    ):
        assert words in out


def test_validate_lists_every_problem_and_counts_them(cli, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(RECIPE.replace("steps: 2\n", "stpes: 2\n"))
    code, out, err = cli("validate", path, "kernel.gama=1")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{path}:10: inner.stpes: unknown key; did you mean 'steps'?",
        "override 'kernel.gama=1': kernel.gama: unknown key; did you mean 'gamma'?",
        "2 problems",
    ]


def test_a_remark_on_a_problem_is_not_counted_as_another(cli, fakes):
    fakes.plugin("late", "import no_such_module")
    code, _, err = cli("validate", "fake", "kernel.use=theirs")
    assert code == 4
    assert len(err.splitlines()) == 2
    assert "problems" not in err
    _, _, err = cli("validate", "fake", "kernel.use=theirs", "data.weighs=2")
    assert err.splitlines()[-1] == "2 problems"


def test_validate_notes_plugins_that_are_left_out(cli, fakes):
    fakes.plugin("late", "import no_such_module")
    code, _, err = cli("validate", "fake")
    assert code == 0
    assert "note: plugin 'late' (dist-late 1.0) is left out: ModuleNotFoundError" in err


def test_data_problems_exit_3(cli):
    assert cli("validate", "fake", "data.broken=list")[0] == 3


LISTED = {
    "all": ([], ["glyphs", "maml", "gaussian", "tasml", "csv", "fake"]),
    "kind": (["kernel"], ["gaussian", "laplace"]),
    "kind and glob": (["kernels", "g*"], ["gaussian"]),
    "glob": (["l*"], ["laplace", "linear", "ls"]),
    "recipes": (["recipes"], ["fake"]),
}


@pytest.mark.parametrize(("words", "names"), LISTED.values(), ids=LISTED)
def test_ls(cli, words, names):
    code, out, _ = cli("ls", *words)
    assert code == 0
    found = [line.split()[1] for line in out.splitlines()[1:]]
    assert set(names) <= set(found)
    assert not words or set(names) == set(found)


def test_recipe_is_among_the_kinds_that_there_are(cli):
    assert "task_weighting, tracker, recipe)" in cli("ls", "foo")[2]
    assert "did you mean 'recipe'?" in cli("ls", "recpie")[2]


def test_ls_says_what_a_recipe_is_for(cli):
    assert "A recipe of fakes\n" in cli("ls", "recipe")[1]


def test_ls_has_the_whole_first_sentence_of_a_recipe(cli, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("# metaforge run mine.yaml\n#\n# As Doe et al. do,\n# for 5.5 ways. More.\n")
    assert ls.summary(path) == "As Doe et al. do, for 5.5 ways"
    path.write_text("name: mine\n")
    assert ls.summary(path) == ""


def test_show_has_options_docstring_and_citations(cli):
    code, out, _ = cli("show", "maml")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "inner_algorithm maml: gradient steps"
    assert "plugin 'fake' (fake-dist 2.1); code in fakeplug_parts:Part" in lines
    assert "steps integer > 0 default 5 inner steps" in lines
    assert "model model default linear what is adapted" in lines
    assert "``y = x``" in lines
    assert "@article{fake2020," in lines
    assert "fakeplug_parts" not in sys.modules


def test_show_types_in_words(cli):
    lines = [" ".join(line.split()) for line in cli("show", "laplace")[1].splitlines()]
    assert 'sigma number > 0 | median default "median"' in lines
    assert "A documented function." in lines
    assert "hidden list of integer > 0 default [64]" in " ".join(cli("show", "mlp")[1].split())


def test_show_every_kind_of_a_name(cli, fakes):
    fakes.plugin(
        "more",
        """
        from metaforge.components import Component
        from metaforge.hookspecs import hookimpl

        @hookimpl
        def metaforge_task_kernels():
            return [Component("task_kernel", "linear", "nowhere.at.all:Kernel")]
        """,
    )
    both = cli("show", "linear")[1]
    assert "model linear" in both
    assert "task_kernel linear" in both
    assert "model linear" not in cli("show", "kernel", "linear")[1]


def test_show_a_recipe_prints_it(cli):
    assert RECIPE in cli("show", "fake")[1]


def test_cp_copies_and_never_overwrites(cli, tmp_path):
    code, out, _ = cli("cp", "fake")
    assert code == 0
    assert "metaforge run fake.yaml" in out
    assert Path("fake.yaml").read_text() == RECIPE
    assert load("fake.yaml").base_dir == Path.cwd()
    Path("fake.yaml").write_text("mine")
    assert cli("cp", "fake")[0] == 2
    assert Path("fake.yaml").read_text() == "mine"
    assert cli("cp", "fake", tmp_path)[0] == 0
    assert (tmp_path / "fake.yaml").read_text() == RECIPE
    assert cli("cp", "fake", "no/such/folder/x.yaml")[0] == 2


def test_cp_to_what_ends_in_a_slash_makes_the_folder(cli):
    assert cli("cp", "fake", "my/recipes/")[0] == 0
    assert Path("my/recipes/fake.yaml").read_text() == RECIPE
    code, _, err = cli("cp", "fake", "my/recipes/fake.yaml/")
    assert (code, "cannot be written" in err) == (2, True)


def test_plugins_as_a_table_and_as_json(cli, fakes):
    fakes.plugin("late", "import no_such_module")
    code, out, _ = cli("-p", "no:builtin", "plugins")
    assert code == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()[1:]}
    assert rows["late"].startswith("dist-late 1.0 failed ModuleNotFoundError")
    assert rows["builtin"] == "metaforge 1.0 blocked blocked by -p no:builtin"
    assert "task_kernel gaussian" in rows["fake"]
    found = {plugin["name"]: plugin for plugin in json.loads(cli("plugins", "--json")[1])}
    assert found["fake"]["state"] == "loaded"
    assert len(found["fake"]["source_hash"]) == 16
    assert {"kind": "task_kernel", "name": "gaussian"} in found["fake"]["components"]


LAZY = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_task_kernels():
    return [Component("task_kernel", "lazy", "nowhere:Kernel", "no_such_module:Options", "late")]
"""


def test_options_that_cannot_be_imported(cli, fakes):
    """Who lists needs none; who tells of plugins or uses the component says what is wrong."""
    fakes.plugin("lazy", LAZY)
    why = "task_kernel 'lazy': its options no_such_module:Options cannot be imported"
    assert "late" in cli("ls", "kernel")[1]
    assert cli("validate", "fake") == cli("-p", "no:lazy", "validate", "fake")
    code, _, err = cli("validate", "fake", "kernel.use=lazy")
    assert code == 4
    assert err.startswith(f"override 'kernel.use=lazy': kernel.use: {why}: ModuleNotFoundError")
    code, _, err = cli("show", "lazy")
    assert (code, why in err) == (4, True)
    assert f"dist-lazy 1.0  failed  {why}" in cli("plugins")[1]
    code, out, _ = cli("doctor")
    assert (code, f"plugin 'lazy' (dist-lazy 1.0): {why}" in out) == (1, True)
    assert '"lazy"' not in cli("schema")[1]


def test_blocking_ends_with_the_call(cli):
    assert "blocked" in cli("-p", "no:fake", "plugins")[1]
    assert "blocked" not in cli("plugins")[1]


def test_plugin_file_on_the_command_line(cli, fakes, tmp_path):
    fakes.packages.append("my_model")
    path = tmp_path / "my_model.py"
    path.write_text(
        "from metaforge.components import Component\n"
        "from metaforge.hookspecs import hookimpl\n"
        "@hookimpl\n"
        "def metaforge_models():\n"
        "    return [Component('model', 'mine', 'my_model:f')]\n"
    )
    assert "mine" in cli("--plugin", path, "ls", "model")[1]
    assert cli("--plugin", path, "validate", "fake", "inner.model=mine")[0] == 0
    assert cli("validate", "fake", "inner.model=mine")[0] == 2
    assert cli("--plugin", tmp_path / "absent.py", "ls")[0] == 4


COMMAND = """
import click
from metaforge.hookspecs import hookimpl

@click.command(short_help="Say hello.")
def hello():
    click.echo("hello there")

@hookimpl
def metaforge_add_commands(cli):
    cli.add_command(hello, "{name}")
"""


def test_commands_of_plugins(cli, fakes):
    fakes.plugin("extra", COMMAND.format(name="hello"))
    assert cli("hello") == (0, "hello there\n", "")
    assert "Say hello. [extra]" in cli("--help")[1]
    code, _, err = cli("-p", "no:extra", "hello")
    assert (code, "no such command" in err) == (2, True)
    assert "hello" not in cli("-p", "no:extra", "--help")[1]


def test_command_of_a_plugin_hides_no_verb(cli, fakes):
    fakes.plugin("extra", COMMAND.format(name="ls"))
    assert "gaussian" in cli("ls")[1]
    problem = "its command 'ls' never runs, as a built-in verb has this name: rename it"
    note = f"note: plugin 'extra' (dist-extra 1.0): {problem}\n"
    assert cli("--help")[2] == note
    assert note in cli("doctor")[1]
    assert f"dist-extra 1.0  loaded  {problem}\n" in cli("plugins")[1]
    found = {plugin["name"]: plugin for plugin in json.loads(cli("plugins", "--json")[1])}
    assert found["extra"]["problems"] == [problem]
    assert found["fake"]["problems"] == []
    assert cli("validate", "fake")[2] == ""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_name_that_plugins_cannot_take(site, verb):
    site.plugin("extra", COMMAND.format(name=verb) + '    cli.add_command(hello, "hello")\n')
    (record,) = site.host().plugins
    assert (record.state, list(record.commands)) == ("loaded", ["hello"])
    assert repr(verb) in record.problems[0]


def test_two_plugins_with_one_command(cli, fakes):
    for name in ("one", "two"):
        fakes.plugin(name, COMMAND.format(name="hello"))
    code, _, err = cli("hello")
    assert code == 4
    assert "dist-one" in err
    assert "dist-two" in err


def test_cite_has_the_method_and_each_entry_once(cli):
    code, out, _ = cli("cite", "fake")
    assert code == 0
    assert out.count("@inproceedings{wang2020structured,") == 1
    assert out.count("@article{fake2020,") == 1


def test_report_prints_what_the_report_module_renders(cli, tmp_path, monkeypatch):
    fake = ModuleType("metaforge.report")
    fake.render_text = lambda run: f"results of {run}"
    fake.html = None
    monkeypatch.setitem(sys.modules, "metaforge.report", fake)
    assert cli("report", "--text", tmp_path)[1] == f"results of {tmp_path}\n"


def test_schema_has_the_plugins_options_and_refers_to_what_it_defines(cli):
    schema = json.loads(cli("schema")[1])
    kernels = schema["$defs"]["task_kernel"]["anyOf"]
    assert kernels[0]["enum"] == [
        "gaussian",
        "fake-dist:gaussian",
        "laplace",
        "fake-dist:laplace",
    ]
    gaussian = kernels[1]
    assert gaussian["additionalProperties"] is False
    assert gaussian["properties"]["gamma"]["exclusiveMinimum"] == 0
    assert gaussian["properties"]["use"]["enum"] == ["gaussian", "fake-dist:gaussian"]
    assert schema["properties"]["kernel"]["$ref"] == "#/$defs/task_kernel"
    assert schema["properties"]["trackers"]["items"] == {"$ref": "#/$defs/tracker"}
    maml = schema["$defs"]["inner_algorithm"]["anyOf"][1]["properties"]
    assert maml["model"]["$ref"] == "#/$defs/model"
    assert maml["backbone"]["anyOf"] == [{"$ref": "#/$defs/backbone"}, {"type": "null"}]
    references = set(_references(schema))
    assert references
    assert all(reference.removeprefix("#/$defs/") in schema["$defs"] for reference in references)


def _references(schema):
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def test_doctor_tells_of_plugins_that_fail(cli, fakes):
    fakes.plugin("late", "import no_such_module")
    code, out, _ = cli("doctor")
    assert code == 1
    assert "missing: plugin 'late' (dist-late 1.0): ModuleNotFoundError" in out
    assert "python" in out


def test_doctor_tells_of_a_cache_folder_of_no_use(cli, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLUMNS", "1000")  # no path is cut
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "file" / "below"))
    assert f"({tmp_path / 'file'} is a file, a folder is needed)" in cli("doctor")[1]
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "new"))
    assert "new (not made yet)" in cli("doctor")[1]


def test_doctor_names_the_commands_for_optional_packages(cli, monkeypatch):
    monkeypatch.setattr("metaforge.cli.doctor.find_spec", lambda name: None)
    _, out, _ = cli("doctor")
    assert 'pip install --no-deps "learn2learn==0.2.0"' in out
    assert 'pip install --no-deps "higher==0.2.1"' in out


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "pretrain"])
def test_help_of_each_verb_agrees_with_the_table(cli, verb):
    import importlib

    module, _, attribute = VERBS[verb][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert command.short_help == VERBS[verb][1]
    assert cli(verb, "--help")[0] == 0
    assert VERBS[verb][1] in cli("--help")[1]


def test_version(cli):
    from metaforge import __version__

    assert cli("--version") == (0, f"metaforge, version {__version__}\n", "")
