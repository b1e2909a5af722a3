"""One thread for the tests' small tensors: more only wait for each other. Torch-free."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
