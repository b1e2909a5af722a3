"""Speed against peers and floors: ``python -m benchmarks [NAME ...] [--device cuda]``.

Each module beside the harness answers one question and has ``rows() -> Iterable[Row]``; one that
is ``CPU_ONLY`` is left out on other devices. ``check`` times a few of them and compares.
"""
