from __future__ import annotations

import numpy as np
import pytest

import bo_tuner
from bo_tuner import choice
from bo_tuner.errors import UserError
from bo_tuner.kernels import load_kernel
from bo_tuner.pretrained import load_prior
from bo_tuner.surrogates.meta_gp import MetaGP
from bo_tuner.task import Task, device_named

DEVICE = device_named("nvidia_h200")
GEMM = load_kernel("gemm").task({"M": 300, "N": 4096, "K": 512}, DEVICE)


def test_it_is_the_priors_favourite_and_no_covariance_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a choice without trials needs no covariance")

    monkeypatch.setattr(MetaGP, "_covariance", refuse)
    spec = load_kernel("gemm")
    pool = spec.pool(GEMM)
    expected = pool.config(int(np.argmax(load_prior(spec).prior_mean(pool))))
    assert bo_tuner.choose(GEMM) == expected


def test_what_a_caller_does_to_it_stays_with_the_caller() -> None:
    first = bo_tuner.choose(GEMM)
    first["block_m"] = 0
    assert bo_tuner.choose(GEMM)["block_m"] != 0


def test_a_task_is_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bo_tuner.choose(GEMM)
    monkeypatch.setattr(choice, "_prior", lambda kernel: pytest.fail("the prior was asked again"))
    bo_tuner.choose(GEMM)


def test_a_kernel_without_prior_is_told() -> None:
    load_kernel("tests.toy_kernel")
    with pytest.raises(UserError, match="none is shipped for toy"):
        bo_tuner.choose(Task("toy", {"rows": 64, "cols": 64}, DEVICE))
