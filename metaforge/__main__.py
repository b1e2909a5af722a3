"""``python -m metaforge``."""

import sys

from metaforge.cli import process

if __name__ == "__main__":
    sys.exit(process())
