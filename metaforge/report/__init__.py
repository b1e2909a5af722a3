"""Reports of a run, made from its ``results.json``."""

from metaforge.report.text import render_lines, render_text

__all__ = ["render_lines", "render_text"]
