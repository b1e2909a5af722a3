"""Reports of a run, made from its ``results.json``."""

from metaforge.report.text import closing_lines, render_text, result_table

__all__ = ["closing_lines", "render_text", "result_table"]
