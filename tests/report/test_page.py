"""The page of a run: whole markup, nothing from outside, every figure, every string escaped."""

from __future__ import annotations

import json
import time

import pytest

from metaforge.cli import main
from metaforge.errors import DamagedFile, DataError
from metaforge.report import html, render_text
from tests.comparison.folders import write_json
from tests.report.folders import change_lines, write_page_run
from tests.report.markup import Page

FIGURES = {
    *("score-against-steps", "gain-against-steps", "before-and-after", "gains", "controls"),
    *("sample-sizes", "signature-map", "kernel-matrix", "meta-train-loss"),
    "meta-train-validation",
}
#: Of what users and data name.
HOSTILE = '</style></svg><script>alert("1")</script><img src=x onerror=alert(1)>&amp;\'"{{ 7*7 }}'


def page(folder) -> Page:
    return Page(html.write_run(folder).read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path):
    return write_page_run(tmp_path / "run")


def test_the_page_is_whole_and_has_every_figure(run):
    found = page(run)
    assert found.faults == []
    assert set(found.figures) == FIGURES
    for words in ("What limits", "Selection on validation", "wang2020structured", "a note"):
        assert (words in found.text) == (words != "What limits")  # this run has no verdict


def test_figures_of_the_page_are_those_of_the_text(run):
    text, found = render_text(run), page(run).text
    for cell in text.splitlines()[2].split():
        assert cell in found


SPECIMENS = {
    "an open element": lambda text: text.replace("</section>", "", 1),
    "a closing tag too many": lambda text: text.replace("</main>", "</div></main>"),
    "a script": lambda text: text.replace("</main>", "<script>1</script></main>"),
    "an event": lambda text: text.replace("<main>", '<main onload="1">'),
    "an image from outside": lambda text: text.replace(
        "</main>", '<img alt="x" src="https://example.org/x.png"></main>'
    ),
    "an image without words": lambda text: text.replace(
        "</main>", '<img src="data:image/png;base64,"></main>'
    ),
    "a font from outside": lambda text: text.replace("<style>", "<style>@import 'a.css';"),
    "a background from outside": lambda text: text.replace("<style>", "<style>a{b:url(c)}"),
    "an id twice": lambda text: text.replace("<main>", '<main id="results">'),
    "a link to nothing": lambda text: text.replace('href="#results"', 'href="#other"'),
    "an empty figure": lambda text: text.replace(
        "</main>", '<figure id="e"><figcaption>n = 3</figcaption></figure></main>'
    ),
    "a figure without n": lambda text: text.replace(
        "</main>", '<figure id="e"><svg><path d="M0 0"/></svg></figure></main>'
    ),
    "a heading of no column": lambda text: text.replace(' scope="col"', "", 1),
}


@pytest.mark.parametrize("spoil", SPECIMENS.values(), ids=SPECIMENS)
def test_the_laws_reject_spoiled_pages(run, spoil):
    text = html.write_run(run).read_text(encoding="utf-8")
    assert spoil(text) != text
    assert Page(spoil(text)).faults != []


def test_the_same_folder_gives_the_same_bytes(run, tmp_path):
    first = html.write_run(run).read_bytes()
    assert html.write_run(run, to=tmp_path / "again.html").read_bytes() == first


def spoil_json(path, edit):
    found = json.loads(path.read_text())
    edit(found)
    write_json(path, found)


def hostile_results(found):
    found["recipe"] = found["split"] = found["task"]["data"] = HOSTILE
    found["notes"] = found["warnings"] = [HOSTILE]
    found["controls"] = {HOSTILE: found["controls"]["random_m"]}
    for tried in found["selection"]["tried"]:
        tried["options"] = {HOSTILE: HOSTILE}
    found["published"] = [
        {
            "source": HOSTILE,
            "unconditional": None,
            "conditional": None,
            "spread": HOSTILE,
            "finding": HOSTILE,
        }
    ]


def hostile_picture(found):
    found["groups"] = [HOSTILE, HOSTILE + "2"]
    for one in found["chosen"]:
        one["why"] = [HOSTILE]
        for shown in (one["sample"], *(r["sample"] for r in one["recalled"])):
            shown["classes"] = [HOSTILE]


def hostile_env(found):
    found["device_name"] = found["python"] = HOSTILE
    found["packages"] = {HOSTILE: HOSTILE}
    found["components"]["data"] |= {"name": HOSTILE, "distribution": HOSTILE}


def test_hostile_strings_are_text(run, monkeypatch):
    spoil_json(run / "results.json", hostile_results)
    spoil_json(run / "artifacts" / "picture.json", hostile_picture)
    spoil_json(run / "env.json", hostile_env)
    (run / "recipe.yaml").write_text(f"# {HOSTILE}\n")
    change_lines(
        run / "targets.jsonl",
        lambda r: r.update(curves={"conditional": r["curves"]["conditional"], HOSTILE: [0.5] * 4}),
    )
    found = page(run)
    assert found.faults == []
    assert set(found.figures) == FIGURES
    assert found.text.count(HOSTILE) > 20
    assert "49" not in found.text.partition("as given")[2].partition("Every option")[0]


def test_a_template_that_trusts_its_strings_would_be_found(run, monkeypatch):
    from markupsafe import Markup

    from metaforge.report.html import run_page

    monkeypatch.setattr(run_page, "_notes", lambda results: [Markup(HOSTILE)])
    assert page(run).faults != []


def test_sections_of_plugins_are_escaped(run, monkeypatch):
    from metaforge import plugins

    host = plugins.host()
    monkeypatch.setattr(type(host), "report_sections", lambda self, results: [(HOSTILE, HOSTILE)])
    found = page(run)
    assert found.faults == []
    assert found.text.count(HOSTILE) == 2


def test_a_regression_counts_a_smaller_error_as_gain(tmp_path):
    run = write_page_run(tmp_path / "run", regression=True)
    found = page(run)
    assert found.faults == []
    difference = json.loads((run / "results.json").read_text())["difference"]["mean"]
    assert difference > 0  # a larger error
    assert f"{-difference:+.3f}" in found.text
    assert "decrease of the error" in found.text


def test_an_older_run_says_what_it_lacks(tmp_path):
    run = write_page_run(tmp_path / "run", shown=False)
    (run / "metrics.jsonl").unlink()
    found = page(run)
    assert found.faults == []
    missing = {"signature-map", "kernel-matrix", "meta-train-loss", "meta-train-validation"}
    assert set(found.figures) == FIGURES - missing
    assert "has no artifacts/picture.json" in found.text
    assert "metrics.jsonl has none" in found.text


def test_a_weighting_that_ranks_nothing_says_so(run):
    spoil_json(
        run / "artifacts" / "picture.json",
        lambda found: found.update(
            kernel=None,
            map=None,
            chosen=[{**one, "kept": 0, "weights": [], "recalled": []} for one in found["chosen"]],
        ),
    )
    change_lines(run / "targets.jsonl", lambda record: record.pop("weights"))
    found = page(run)
    assert found.faults == []
    assert "ranks no tasks" in found.text
    assert "sample-sizes" not in found.figures


@pytest.mark.parametrize("n", [1, 2])
def test_few_targets(tmp_path, n):
    found = page(write_page_run(tmp_path / "run", n))
    assert found.faults == []
    assert "undefined" in found.text or n == 2


def test_six_hundred_targets_in_seconds_and_megabytes(tmp_path):
    run = write_page_run(tmp_path / "run", 600)
    start = time.process_time()
    path = html.write_run(run)
    assert time.process_time() - start < 15
    assert path.stat().st_size < 5e6
    assert Page(path.read_text(encoding="utf-8")).faults == []


# -- the verb ----------------------------------------------------------------------------------


def test_the_verb_prints_the_table_and_says_where_the_page_is(run, capsys):
    assert main(["report", str(run)]) == 0
    told = capsys.readouterr()
    assert told.out == render_text(run) + "\n"
    assert told.err == f"page: {run / 'report.html'}\n"
    assert (run / "report.html").exists()


def test_text_alone_writes_nothing(run, capsys):
    before = sorted(run.rglob("*"))
    assert main(["report", "--text", str(run)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == (render_text(run) + "\n", "")
    assert sorted(run.rglob("*")) == before


def test_the_page_goes_where_it_is_sent(run, tmp_path, capsys):
    assert main(["report", "--html", str(tmp_path / "mine.html"), str(run)]) == 0
    assert "mine.html" in capsys.readouterr().err
    assert not (run / "report.html").exists()
    assert (tmp_path / "mine.html").exists()


def test_a_page_that_cannot_be_written_is_told_and_leaves_nothing(run, tmp_path, capsys):
    assert main(["report", "--html", str(tmp_path / "no" / "mine.html"), str(run)]) == 3
    told = capsys.readouterr()
    assert "mine.html: cannot write: No such file or directory" in told.err
    assert "Traceback" not in told.err
    assert told.out == render_text(run) + "\n"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("found", "hint"), [(True, ""), (False, "no browser was found")])
def test_it_is_opened_in_a_browser(run, monkeypatch, capsys, found, hint):
    seen = []
    monkeypatch.setattr("webbrowser.open", lambda where: seen.append(where) or found)
    assert main(["report", "--open", str(run)]) == 0
    assert seen == [(run / "report.html").resolve().as_uri()]
    assert hint in capsys.readouterr().err


DAMAGES = {
    "picture.json cut short": ("artifacts/picture.json", lambda text: text[:50]),
    "picture.json with a group too many": (
        "artifacts/picture.json",
        lambda text: text.replace('"groups": ["letters", "typefaces"]', '"groups": ["letters"]'),
    ),
    "picture.json with a row too few": (
        "artifacts/picture.json",
        lambda text: text.replace('"levels": [', '"levels": [7, '),
    ),
    "picture.json with tasks off the map": (
        "artifacts/picture.json",
        lambda text: text.replace('"recalled": [{"id": 0', '"recalled": [{"id": 777'),
    ),
    "picture.json of another shape": ("artifacts/picture.json", lambda text: '{"groups": 3}'),
    "metrics.jsonl of words": ("metrics.jsonl", lambda text: '{"step": "first"}\n'),
    "no targets": ("targets.jsonl", lambda text: ""),
    "env.json": ("env.json", lambda text: "{}"),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_folders_are_told(run, name, damage):
    path = run / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DamagedFile, match=path.name):
        html.write_run(run)
    assert not (run / "report.html").exists()


def test_an_unfinished_run_has_no_page(run):
    write_json(run / "status.json", {"state": "running", "stage": "evaluate"})
    with pytest.raises(DataError, match="unfinished"):
        html.write_run(run)


def test_a_component_that_is_not_here_costs_the_citations_alone(run):
    text = (run / "resolved.yaml").read_text()
    (run / "resolved.yaml").write_text(text.replace("use: maml", "use: elsewhere"))
    found = page(run)
    assert found.faults == []
    assert "Not all components of the recipe are here" in found.text
    assert "wang2020structured" not in found.text
