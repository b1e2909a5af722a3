"""What users of bad plugins meet, through the command line: the message names plugin, distribution,
hook and task, the command ends with the code for it, and a run keeps what it has."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from metaforge import discovery
from metaforge.cli import main
from metaforge.recipe.dialect import dump
from tests.small import SMALL

HEAD = """
import torch
from metaforge import hookimpl
from metaforge.components import Component
from metaforge.contracts import TaskKernel
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions
from metaforge_maml.algorithm import Maml
from metaforge_maml.options import MamlOptions
"""
OFFER = """
@hookimpl
def metaforge_{kind}s():
    return [Component("{kind}", "bad", "bad:Bad", options={options})]
"""


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METAFORGE_CACHE", str(tmp_path / "cache"))
    yield
    discovery.configure(None)
    sys.modules.pop("bad", None)


class Cli:
    """Commands with a plugin of one file, ``bad.py``; what they print to standard error."""

    def __init__(self, capsys):
        self._capsys = capsys

    def plugin(self, body: str, kind: str = "", options: str = "MamlOptions") -> None:
        sys.modules.pop("bad", None)
        offer = OFFER.format(kind=kind, options=options) if kind else ""
        Path("bad.py").write_text(HEAD + dedent(body) + offer)

    def __call__(self, *arguments: str, given: bool = True) -> tuple[int, str, str]:
        code = main([*(["--plugin", "bad.py"] if given else []), *arguments])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    def run(
        self, *changes: str, quiet: bool = True, given: bool = True, **recipe
    ) -> tuple[int, str, str]:
        Path("small.yaml").write_text(dump({**SMALL, **recipe}))
        options = ["--quiet"] if quiet else []
        return self("run", *options, "small.yaml", *changes, given=given)


@pytest.fixture
def cli(capsys) -> Cli:
    return Cli(capsys)


INNER = {**SMALL["inner"], "use": "bad"}
#: Files of a run that stopped while it trained.
STARTED = {"recipe.yaml", "resolved.yaml", "env.json", "status.json", "log.txt"}


def folder() -> Path:
    (found,) = Path("runs").iterdir()
    return found


# -- 4, 6, 7: gradients ------------------------------------------------------------------------


def test_a_parameter_that_the_loss_does_not_reach(cli):
    cli.plugin(
        """
        class Bad(Maml):
            def init(self, shape, generator):
                return {**super().init(shape, generator), "spare": torch.zeros(3)}

            def losses(self, params, tasks, **rest):
                used = {k: v for k, v in params.items() if k != "spare"}
                return super().losses(used, tasks, **rest)
        """,
        "inner_algorithm",
    )
    code, _, err = cli.run(inner=INNER)
    assert code == 4
    assert "spare" in err
    assert "allow_unused" in err
    assert {path.name for path in folder().iterdir()} >= STARTED


@pytest.mark.parametrize("cut", ["detach()", "clone().data"])
def test_a_cut_graph_stops_after_the_first_step_and_names_the_plugin(cli, cut):
    cli.plugin(
        f"""
        class Bad(Maml):
            def losses(self, params, tasks, **rest):
                return super().losses(params, tasks, **rest).{cut}
        """,
        "inner_algorithm",
    )
    code, _, err = cli.run(inner=INNER)
    assert code == 4
    assert "bad" in err
    assert "graph" in err
    assert json.loads((folder() / "status.json").read_text())["state"] == "failed"


def test_predictions_before_adaptation_are_found_by_the_kit(cli):
    cli.plugin(
        """
        class Bad(Maml):
            def predict(self, params, support, query_x):
                zeros = torch.zeros(*query_x.shape[:2], support.outputs, dtype=torch.float64)
                return zeros + sum(v.sum() for v in params.values())
        """,
        "inner_algorithm",
    )
    code, out, err = cli("plugins", "check", "bad")
    assert code == 4
    assert "broken: adaptation" in out
    assert "predictions do not depend on the support labels" in out
    assert "plugin 'bad' breaks" in err


# -- 13: a matrix that is not positive definite ------------------------------------------------


def test_an_indefinite_kernel_is_named_with_its_eigenvalue(cli):
    cli.plugin(
        """
        class Bad(Gaussian):
            name = "bad"

            def gram(self, a, b):
                return super().gram(a, b) - 1.0

            def diag(self, a):
                return super().diag(a) - 1.0
        """,
        "task_kernel",
        "GaussianOptions",
    )
    code, _, err = cli.run("weighting.lambda=1e-8", kernel={"use": "bad"})
    assert code == 5
    assert "task kernel 'bad'" in err
    assert "smallest eigenvalue is -" in err
    assert (folder() / "artifacts" / "theta_hat.safetensors").exists(), "phase 1 is kept"


# -- 15: options -------------------------------------------------------------------------------


def test_an_option_that_no_component_reads(cli):
    cli.plugin("class Bad(Gaussian):\n    pass\n", "task_kernel", "GaussianOptions")
    code, _, err = cli.run("kernel.widht=2", kernel={"use": "bad"})
    assert code == 2
    assert "kernel.widht" in err
    assert "did you mean 'width'" in err
    assert not Path("runs").exists()


# -- 47, 48: plugins that fail -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import a_module_that_is_nowhere", "a_module_that_is_nowhere"),
        ("@hookimpl\ndef metaforge_task_kernel():\n    return []", "'metaforge_task_kernels'"),
        ("def metaforge_task_kernels():\n    return []", "not marked with @metaforge.hookimpl"),
        ("x = 1", "implements no hook"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
    ids=["import", "misspelled hook", "no mark", "no hook", "exits"],
)
def test_a_file_that_is_no_plugin(cli, body, words):
    cli.plugin(body)
    code, _, err = cli.run()
    assert code == 4
    assert "--plugin" in err
    assert "bad.py" in err
    assert words in err
    assert not Path("runs").exists()


def test_an_observer_that_fails_costs_no_result_and_is_named_with_hook_and_task(cli):
    cli.plugin(
        """
        @hookimpl
        def metaforge_target_evaluated(record):
            if record["task_id"] == 3:
                raise RuntimeError("no more room for me")
        """
    )
    code, _, _err = cli.run()
    assert code == 0
    results = json.loads((folder() / "results.json").read_text())
    (note,) = [note for note in results["notes"] if "no more room" in note]
    for part in ("bad", "metaforge_target_evaluated", "task_id=3", "heard no more"):
        assert part in note
    assert results["conditional"]["n"] == SMALL["evaluate"]["targets"]


def test_an_observer_cannot_change_a_result(cli):
    assert cli.run(given=False)[0] == 0
    expected = json.loads((folder() / "results.json").read_text())["conditional"]
    shutil.rmtree("runs")
    cli.plugin(
        """
        @hookimpl
        def metaforge_meta_step(step, metrics):
            metrics.clear()

        @hookimpl
        def metaforge_target_evaluated(record):
            record["curves"].clear()

        @hookimpl
        def metaforge_run_finished(run_dir, results):
            results.clear()

        @hookimpl
        def metaforge_report_sections(results):
            results.clear()
            raise SystemExit(3)
        """
    )
    code, out, _ = cli.run(quiet=False)
    assert code == 0
    assert json.loads((folder() / "results.json").read_text())["conditional"] == expected
    assert "A section of plugin 'bad' (bad.py) is missing" in out


def test_what_fails_in_the_middle_names_the_task_and_keeps_the_records(cli):
    cli.plugin(
        """
        class Bad(Maml):
            def predict(self, params, support, query_x):
                if int(support.task_ids[0]) == 5 and not torch.is_grad_enabled():
                    if len(support) == 1:
                        raise RuntimeError("cannot bear this one")
                return super().predict(params, support, query_x)
        """,
        "inner_algorithm",
    )
    code, _, err = cli.run("evaluate.workers=1", inner=INNER)
    assert code == 4
    for part in ("bad", "predict", "target 5", "cannot bear this one"):
        assert part in err, err
    kept = (folder() / "targets.jsonl").read_text().splitlines()
    assert len(kept) == 5
    assert json.loads((folder() / "status.json").read_text())["state"] == "failed"


# -- 49: a plugin that is gone -----------------------------------------------------------------


def test_a_run_whose_plugin_is_missing_says_who_had_it(cli):
    cli.plugin("class Bad(Gaussian):\n    pass\n", "task_kernel", "GaussianOptions")
    assert cli.run(kernel={"use": "bad"})[0] == 0
    discovery.configure(None)
    code, _, err = cli("run", "--resume", str(folder()), given=False)
    assert code == 4
    assert "kernel bad was from the plugin file bad.py: give it again" in err


def test_a_run_whose_plugin_has_changed_is_not_resumed(cli):
    cli.plugin("class Bad(Gaussian):\n    pass\n", "task_kernel", "GaussianOptions")
    assert cli.run(kernel={"use": "bad"})[0] == 0
    discovery.configure(None)
    discovery.source_hash.cache_clear()
    cli.plugin("class Bad(Gaussian):\n    other = 1\n", "task_kernel", "GaussianOptions")
    code, _, err = cli("run", "--resume", str(folder()))
    assert code == 4
    assert "cannot be resumed" in err
    assert "kernel bad, source" in err


# -- 50: regression ----------------------------------------------------------------------------


def test_a_component_for_classification_alone_refuses_regression_before_the_run(cli):
    cli.plugin(
        """
        class Bad(Maml):
            tasks = frozenset({"classification"})
        """,
        "inner_algorithm",
    )
    code, _, err = cli.run(inner=INNER)
    assert code in (2, 4)
    assert "regression" in err
    assert "bad" in err
    assert not list(Path("runs").glob("*/artifacts/theta_hat.safetensors"))
