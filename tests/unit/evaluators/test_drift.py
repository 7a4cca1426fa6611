"""Telling a config from the moment at which it was timed."""

from __future__ import annotations

import numpy as np
import pytest

from bo_tuner.evaluators.drift import interleaved, without_drift


def _readings(n: int, n_rounds: int, drift: float) -> tuple[list[int], np.ndarray, np.ndarray]:
    """True times 1 % apart, noise of 1 %, and a saw-tooth drift that restarts every 128 readings."""
    order = interleaved(n, n_rounds)
    true = 100.0 * 1.01 ** np.arange(n)
    tooth = np.exp(drift * (np.arange(len(order)) % 128) / 128)
    noise = np.exp(0.01 * np.random.default_rng(1).standard_normal(len(order)))
    return order, true, true[order] * tooth * noise


def _errors(order: list[int], readings: np.ndarray, true: np.ndarray) -> float:
    medians = np.array([np.median(readings[np.array(order) == i]) for i in range(len(true))])
    error = np.log(medians / true)
    return float(np.std(error))


def test_a_drift_within_batches_is_taken_out() -> None:
    order, true, readings = _readings(40, 15, drift=0.1)
    corrected = np.array(without_drift(order, readings.tolist()))
    assert _errors(order, corrected, true) < 0.5 * _errors(order, readings, true)
    assert _errors(order, corrected, true) < 0.006


def test_without_a_drift_nothing_is_lost() -> None:
    order, true, readings = _readings(40, 15, drift=0.0)
    corrected = np.array(without_drift(order, readings.tolist()))
    assert _errors(order, corrected, true) < 1.3 * _errors(order, readings, true)
    assert np.median(corrected) == pytest.approx(np.median(readings), rel=0.01)


def test_every_round_has_every_config_once_in_another_order() -> None:
    order = interleaved(12, 5)
    rounds = [tuple(order[first : first + 12]) for first in range(0, 60, 12)]
    assert all(sorted(one) == list(range(12)) for one in rounds)
    assert len(set(rounds)) == 5


@pytest.mark.parametrize(("n", "n_rounds"), [(0, 15), (1, 15), (2, 15), (30, 2)])
def test_few_configs_or_rounds_are_no_trouble(n: int, n_rounds: int) -> None:
    order, _, readings = _readings(n, n_rounds, drift=0.05)
    corrected = without_drift(order, readings.tolist())
    assert len(corrected) == len(readings)
    assert all(np.isfinite(corrected))
