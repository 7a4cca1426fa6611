"""What all tests share: a folder of small synthetic tables."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.toy_kernel import ToySpec, write_toy

# Two processes share two cores; more threads a process only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

N_TRAIN, N_VALIDATION = 8, 4


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the toy kernel, laid out as in ``data/``."""
    root = tmp_path_factory.mktemp("data")
    for split, n_tasks, seed in (("train", N_TRAIN, 1), ("validation", N_VALIDATION, 2)):
        write_toy(root / "toy" / "nvidia_h200" / f"{split}.parquet", ToySpec(), n_tasks, seed)
    return root


@pytest.fixture(scope="session")
def toy_prior_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prior trained on the toy's train tables."""
    from tests.toy_prior import toy_prior  # imports torch, which many tests do without

    path = tmp_path_factory.mktemp("prior") / "toy.safetensors"
    toy_prior().save(path)
    return path
