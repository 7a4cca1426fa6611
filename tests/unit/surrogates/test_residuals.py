from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bo_tuner.storage.alignment import pool_codes
from bo_tuner.surrogates.residuals import (
    Curve,
    align_residuals,
    greedy_portfolio,
    log_efficiency,
    noise_curve,
    variance_curve,
)
from tests.toy_prior import recorded, sources, target

LEFT_OUT = [np.full(len(table), -0.5) for table in sources()]


def test_residuals_have_no_level() -> None:
    """Adding a constant to a task's prediction changes nothing: the level is not the covariance's to explain."""
    shifted = [predicted + 0.3 for predicted in LEFT_OUT]
    a, b = align_residuals(sources(), LEFT_OUT), align_residuals(sources(), shifted)
    np.testing.assert_allclose(a.values.astype(float), b.values.astype(float), atol=1e-3)


def test_failed_and_absent_configs_are_unknown() -> None:
    residuals = align_residuals(sources(), LEFT_OUT)
    for row, table in enumerate(sources()):
        own = np.searchsorted(residuals.codes, pool_codes(table.pool))
        np.testing.assert_array_equal(np.isnan(residuals.values[row, own]), ~table.correct)
        assert np.isnan(np.delete(residuals.values[row], own)).all()


@pytest.mark.parametrize("shrinkage", [0.0, 0.9, 1.0])
def test_variance_is_complete_whatever_the_shrinkage(shrinkage: float) -> None:
    residuals = align_residuals(sources(), LEFT_OUT)
    pool = target().pool
    mean = np.full(len(pool), -0.5)
    factor, rest = residuals.factor(pool_codes(pool), mean, shrinkage)
    assert factor.shape == (len(pool), len(sources()))
    assert (rest >= 0).all()
    total = (factor**2).sum(axis=1) + rest
    assert np.isfinite(total).all()
    assert (total > 0).mean() > 0.99


def test_a_config_no_source_has_takes_its_variance_from_the_curve() -> None:
    residuals = align_residuals(sources(), LEFT_OUT)
    factor, rest = residuals.factor(np.array([10**9]), np.array([-0.2]), 0.9)
    assert not factor.any()
    assert rest[0] == pytest.approx(residuals.variance(np.array([-0.2]))[0])


def test_variance_curve_finds_where_residuals_are_large() -> None:
    rng = np.random.default_rng(0)
    mean = rng.uniform(-2, 0, 4000)
    curve = variance_curve(mean, rng.standard_normal(4000) * np.where(mean < -1, 0.4, 0.1))
    assert np.sqrt(curve(np.array([-1.8, -0.1]))) == pytest.approx([0.4, 0.1], rel=0.15)
    constant = variance_curve(np.zeros(5), np.full(5, 0.2))
    assert constant(np.array([-3.0])) == pytest.approx([0.04])


def test_noise_is_read_from_the_finalists() -> None:
    tables = recorded(8, 1)
    assert np.sqrt(noise_curve(tables)(np.array([3.0]))) == pytest.approx([0.005], rel=0.5)
    drift = [dataclasses.replace(table, reading_us=table.reading_us * 1.1) for table in tables]
    np.testing.assert_allclose(noise_curve(drift).y, noise_curve(tables).y, rtol=1e-6)
    without = [dataclasses.replace(table, n_final=np.zeros(len(table), dtype=np.int64)) for table in tables]
    assert noise_curve(without)(np.array([1.0])) > 0


def test_curve_is_constant_outside_its_knots() -> None:
    assert Curve(np.array([0.0, 1.0]), np.array([2.0, 4.0]))(np.array([-5.0, 0.5, 9.0])).tolist() == [2.0, 3.0, 4.0]


def test_greedy_portfolio_covers() -> None:
    portfolio = greedy_portfolio(sources(), 5)
    assert len(set(portfolio.tolist())) == 5
    efficiency = np.array([[_efficiency(table, code) for code in portfolio] for table in sources()])
    coverage = np.maximum.accumulate(efficiency, axis=1).mean(axis=0)
    assert coverage[-1] > 0.9
    assert (np.diff(coverage) >= 0).all()


def test_log_efficiency_is_zero_at_the_best() -> None:
    values = log_efficiency(target())
    assert np.nanmax(values) == 0.0
    assert np.isnan(values).sum() == (~target().correct).sum()


def _efficiency(table, code):  # type: ignore[no-untyped-def]
    at = np.flatnonzero(pool_codes(table.pool) == code)
    return table.efficiencies[at[0]] if len(at) else 0.0
