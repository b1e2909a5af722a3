"""Speed against peers and floors: ``python -m benchmarks [NAME ...] [--json FILE]``.

Each module beside the harness answers one question and has ``rows() -> list[Row]``.
"""
