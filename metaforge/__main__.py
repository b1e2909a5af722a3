"""``python -m metaforge``."""

import sys

from metaforge.cli import main

if __name__ == "__main__":
    sys.exit(main())
