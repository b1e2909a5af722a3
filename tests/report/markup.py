"""What is wrong with a page: its markup, its references, its figures. Torch-free."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_VOID = {"br", "hr", "img", "input", "link", "meta"}
_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "footer", "main", "nav"),
    *("section", "article", "h1", "h2", "h3", "p", "a", "ul", "li", "dl", "div", "dt", "dd"),
    *("span", "strong", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure"),
    *("figcaption", "img", "svg", "g", "path", "circle", "rect", "line", "text", "image"),
}
_DRAWN = {"path", "circle", "rect", "image"}


class Page(HTMLParser):
    """A page taken apart: faults, ids, figures, and all text that can be read."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.named_by: list[str] = []
        self.targets: list[str] = []
        self.figures: dict[str, dict[str, str | int]] = {}
        self.words: list[str] = []
        self._open: list[str] = []
        self._figure: dict[str, str | int] = {}
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self._open]
        self._check_whole(text)

    def handle_starttag(self, tag, attrs):
        self._element(tag, attrs)
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._element(tag, attrs)

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self._open[-1:] or 'nothing'}")
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag == "figure":
            self._figure = {}

    def handle_data(self, data):
        self.words.append(data)
        if "figcaption" in self._open and self._figure:
            self._figure["caption"] = str(self._figure["caption"]) + data

    def _element(self, tag, attrs):
        if tag not in _TAGS:
            self.faults.append(f"<{tag}> is not of this page")
        if len(dict(attrs)) != len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice")
        found = dict(attrs)
        if tag == "figure":
            self._figure = self.figures[found.get("id", "")] = {"drawn": 0, "caption": ""}
        if tag in _DRAWN and self._figure:
            self._figure["drawn"] = int(self._figure["drawn"]) + 1
        if tag == "img" and not found.get("alt"):
            self.faults.append("an image without words for it")
        if tag == "th" and found.get("scope") not in ("row", "col"):
            self.faults.append("a th without scope")
        self.ids += [found["id"]] if "id" in found else []
        self.named_by += [found["aria-labelledby"]] if "aria-labelledby" in found else []
        self._references(tag, found)

    def _references(self, tag, found):
        for name, value in found.items():
            if name.startswith("on"):
                self.faults.append(f"<{tag}> has {name}")
            if name in ("href", "src", "srcset", "action", "data", "xlink:href"):
                inside = value.startswith("data:image/png;base64,")
                if value.startswith("#"):
                    self.targets.append(value[1:])
                elif not inside:
                    self.faults.append(f"<{tag}> reaches out to {value}")

    def _check_whole(self, text):
        repeated = {one for one in self.ids if self.ids.count(one) > 1}
        self.faults += [f"id {one} is there twice" for one in sorted(repeated)]
        missing = {*self.named_by, *self.targets} - set(self.ids)
        self.faults += [f"nothing has the id {one}" for one in sorted(missing)]
        for name, figure in self.figures.items():
            if not figure["drawn"]:
                self.faults.append(f"figure {name} is empty")
            if not re.search(r"\d", str(figure["caption"])):
                self.faults.append(f"figure {name} has no count in its caption")
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
        if style is None or re.search(r"url\(|@import", style[1]):
            self.faults.append("the style sheet is missing, or reaches out")
        if not text.startswith("<!doctype html>"):
            self.faults.append("no doctype")

    @property
    def text(self) -> str:
        return "".join(self.words)
