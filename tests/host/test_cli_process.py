"""The command line as a user starts it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import RECIPE

REPOSITORY = Path(__file__).parents[2]
#: What no verb that only looks may import: it takes longer than the verb.
HEAVY = ("torch", "scipy", "matplotlib", "rich", "learn2learn", "fakeplug_heavy")
PROBE = f"""
import sys
from metaforge.cli import main
code = main(sys.argv[1:])
print("imported:", *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def environment(fakes):
    Path("fake.yaml").write_text(RECIPE)
    paths = [fakes.path, REPOSITORY, REPOSITORY / "plugins"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def start(environment, *words: str, code: str = PROBE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


LIGHT = [
    ["--help"],
    ["--version"],
    ["ls"],
    ["ls", "kernel"],
    ["show", "gaussian"],
    ["validate", "fake.yaml"],
    ["plugins"],
    ["plugins", "--json"],
    ["schema"],
    ["cp", "fake.yaml", "copy.yaml"],
    ["cite", "fake.yaml"],
    ["run", "--help"],
    ["report", "--help"],
    ["compare", "--help"],
    ["doctor", "--help"],
]


@pytest.mark.parametrize("words", LIGHT, ids=map(" ".join, LIGHT))
def test_looking_imports_nothing_heavy(environment, words):
    done = start(environment, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr.splitlines()[-1] == "imported:"


def test_the_probe_sees_what_is_imported(environment):
    code = "import fakeplug_heavy\n" + PROBE
    done = start(environment, "--version", code=code)
    assert done.stderr.splitlines()[-1] == "imported: fakeplug_heavy"


def test_help_needs_no_plugin_and_no_pydantic(environment):
    # Where only built-in plugins are installed, which bring no command.
    (site,) = [path for path in environment["PYTHONPATH"].split(os.pathsep) if "pytest" in path]
    for path in Path(site).glob("fake_dist*"):
        path.unlink()
    (Path(site) / "fake-dist-2.1.dist-info" / "entry_points.txt").unlink()
    code = "import sys\nfrom metaforge.cli import main\nmain(['--help'])\n"
    done = start(environment, code=code + "print('pydantic' in sys.modules, file=sys.stderr)")
    assert "Commands:" in done.stdout
    assert done.stderr == "False\n"


LISTED = """
from metaforge.components import Component
from metaforge.hookspecs import hookimpl

@hookimpl
def metaforge_models():
    return [Component("model", "listed", "nowhere:Model", "nowhere:Options", "listed only")]
"""


def test_ls_imports_no_options(fakes, environment):
    fakes.plugin("listed", LISTED)
    code = PROBE.replace(repr(HEAVY), "('pydantic', 'yaml')")
    done = start(environment, "-p", "no:fake", "ls", code=code)
    assert "listed only" in done.stdout
    assert done.stderr.splitlines()[-1] == "imported:"
    with_models = start(environment, "ls", code=code)  # the fake plugin imports its own
    assert with_models.stderr.splitlines()[-1] == "imported: pydantic"


def test_module_and_exit_code(environment):
    done = subprocess.run(
        [sys.executable, "-m", "metaforge", "validate", "fake.yaml", "seed=x"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "override 'seed=x': seed: should be a valid integer; found \"x\"\n"


def test_a_reader_that_leaves_causes_no_noise(environment):
    command = [sys.executable, "-m", "metaforge", "schema"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=120) == 141, "as a tool that SIGPIPE ends"


OUTPUT = {
    "full disk": ("> /dev/full", 3, "No space left on device"),
    "closed": (">&-", 3, "Bad file descriptor"),
    "nobody to tell": ("2>&-", 0, ""),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("to", "code", "message"), OUTPUT.values(), ids=OUTPUT)
def test_output_that_cannot_be_written_is_told(environment, unbuffered, to, code, message):
    """Of little text, which is held back till the end, and of much."""
    for verb in ("--version", "schema"):
        done = shell(environment | {"PYTHONUNBUFFERED": unbuffered}, f"{verb} {to}")
        assert done.returncode == code, (verb, done.stderr)
        expected = f"error: standard output: cannot write: {message}\n" if message else ""
        assert done.stderr == expected, verb


def test_messages_that_cannot_be_written_leave_no_trace(environment):
    done = shell(environment, "ls foo 2> /dev/full")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def shell(environment, words: str) -> subprocess.CompletedProcess[str]:
    line = f"exec {sys.executable} -m metaforge {words}"
    return subprocess.run(
        ["sh", "-c", line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_trace_by_environment(environment):
    done = start({**environment, "METAFORGE_TRACE": "1"}, "ls", "kernel")
    assert "metaforge: fake-dist:fake -> metaforge_task_kernels()" in done.stderr


def test_blocked_plugin_is_not_even_imported(environment):
    code = PROBE + "\n"
    code = code.replace("sys.exit(code)", "print('fakeplug' in sys.modules, file=sys.stderr)")
    assert start(environment, "-p", "no:fake", "ls", "recipe", code=code).stderr.endswith("False\n")
    assert start(environment, "ls", "recipe", code=code).stderr.endswith("True\n")


PRESS = """
import os, signal, sys

class Press:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Press())
from metaforge.cli import main
sys.exit(main(["validate", "fake.yaml"]))
"""


@pytest.mark.parametrize(
    "name",
    ["metaforge.cli.call", "click", "metaforge.cli.validate", "pluggy", "pydantic", "fakeplug"],
)
def test_ctrl_c_during_any_import_ends_with_one_line(environment, name):
    done = start(environment, code=PRESS.format(name=name))
    assert done.returncode == 130
    assert (done.stdout, done.stderr.strip()) == ("", "interrupted")


def test_nothing_is_imported_before_ctrl_c_is_met(environment):
    code = """
import sys, __future__
before = set(sys.modules)
from metaforge.cli import main
print(*sorted(set(sys.modules) - before))
"""
    assert start(environment, code=code).stdout == "gc metaforge metaforge.cli\n"  # gc is built in
