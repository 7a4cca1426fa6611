"""Hydra entry points. One job is one process that shares its machine with others, so one thread each.

Twenty rows of a Gaussian process are no work for two threads, and threads of several jobs wait for each other.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
