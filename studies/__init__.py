"""The runs behind docs/results.md, and the page made of them: ``python -m studies``."""
