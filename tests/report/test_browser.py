"""The pages in a real browser, where there is one: nothing to complain of, every figure seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaforge import comparison
from metaforge.report import html
from tests.comparison.folders import write_run
from tests.report.browser import browser, present
from tests.report.folders import write_page_run
from tests.report.markup import Page

pytestmark = pytest.mark.skipif(
    not present(), reason="no browser here: it takes chromium and chromedriver"
)

#: Of every figure: its id, its drawing's width and height, whether any mark has an area.
_FIGURES = """
return [...document.querySelectorAll('figure')].map(f => {
  const box = f.querySelector('svg').getBoundingClientRect();
  const marks = [...f.querySelectorAll('svg:not([aria-hidden]) :is(path, circle, rect, image)')];
  const drawn = marks.filter(m => { const b = m.getBoundingClientRect();
                                    return b.width + b.height > 0; });
  return [f.id, box.width, box.height, drawn.length];
});"""
#: On a phone a window grows with its page.
_WIDTH = "return document.documentElement.scrollWidth"
_COLOURS = """
const seen = element => getComputedStyle(element);
return [seen(document.body).backgroundColor, seen(document.querySelector('svg text')).fill]"""
#: Texts of one drawing that lie over each other, by more than a pixel.
_OVERLAPS = """
const found = [];
for (const drawing of document.querySelectorAll('figure > svg')) {
  const boxes = [...drawing.querySelectorAll('text')].map(t => [t.textContent,
                                                               t.getBoundingClientRect()]);
  boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
    const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
    const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (x > 1 && y > 3) found.push(drawing.parentNode.id + ': ' + a + ' / ' + b);
  }));
}
return found"""


@pytest.fixture
def report(tmp_path) -> Path:
    return html.write_run(write_page_run(tmp_path / "run"))


@pytest.fixture
def compared(tmp_path) -> Path:
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", "weighting.use=uniform", gain=0.1),
    ]
    return Path(comparison.compare_runs(runs)["out"]) / "compare.html"


def faults(page: Path, folder: Path, width: int, dark: bool) -> list[str]:
    """All that is wrong with a page as it is seen."""
    with browser(folder, width, dark) as seen:
        seen.open(page)
        found = [f"console: {line}" for line in seen.complaints()]
        figures = seen.ask(_FIGURES)
        found += [f"figure {f[0]} is not seen: {f[1:]}" for f in figures if not all(f[1:])]
        expected = set(Page(page.read_text(encoding="utf-8")).figures)
        found += [f"figure {name} is lost" for name in expected - {f[0] for f in figures}]
        if (needed := seen.ask(_WIDTH)) > width:
            found.append(f"the page is {needed} pixels wide, wider than its {width}")
        found += [f"texts overlap: {line}" for line in seen.ask(_OVERLAPS)]
        back, text = seen.ask(_COLOURS)
        if (_lightness(back) < 0.5) != dark or (_lightness(text) > 0.5) != dark:
            found.append(f"background {back} with text {text}")
    return found


def _lightness(colour: str) -> float:
    red, green, blue = map(int, colour.partition("(")[2].rstrip(")").split(",")[:3])
    return (red + green + blue) / 765


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", ["report", "compared"])
def test_a_page_is_seen_whole(request, tmp_path, name, width, dark):
    assert faults(request.getfixturevalue(name), tmp_path, width, dark) == []


SPECIMENS = {
    "an image from outside": (
        "console",
        lambda text: text.replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>'),
    ),
    "a script": ("console", lambda text: text.replace("</main>", "<script>1</script></main>")),
    "a figure that is hidden": (
        "not seen",
        lambda text: text.replace("<style>", "<style>#gains {display: none}"),
    ),
    "a wide table": (
        "wider",
        lambda text: text.replace(".scroll { overflow-x: auto;", ".scroll { width: 2000px;"),
    ),
    "one look for light and dark": (
        "background",
        lambda text: text.replace("prefers-color-scheme: dark", "prefers-color-scheme: none"),
    ),
    "letters too large": (
        "overlap",
        lambda text: text.replace("svg text { font-size: 13px;", "svg text { font-size: 60px;"),
    ),
}


@pytest.mark.parametrize(("fault", "spoil"), SPECIMENS.values(), ids=SPECIMENS)
def test_what_is_wrong_is_seen(report, tmp_path, fault, spoil):
    text = report.read_text(encoding="utf-8")
    assert spoil(text) != text
    report.write_text(spoil(text), encoding="utf-8")
    assert any(fault in line for line in faults(report, tmp_path, 900, dark=True))
