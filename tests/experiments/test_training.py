"""Which sources an experiment's prior learns from, and that it is trained once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bo_tuner.errors import UserError
from bo_tuner.kernels.spec import TRAIN_SEED
from bo_tuner.storage.tables import read_tables
from experiments.training import first_shapes, source_paths, trained_prior
from tests.toy_kernel import ToySpec, write_toy
from tests.toy_prior import FEW_STEPS, FEW_TREES

SPEC = ToySpec()
WHOLE, PART, SMALL = "nvidia_h200", "nvidia_h200_72_sms", "nvidia_h200_40_sms"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    for device in (SMALL, PART, WHOLE):
        write_toy(root / "toy" / device / "train.parquet", SPEC, 4, TRAIN_SEED, device)
    return root


def devices(root: Path, **chosen: object) -> list[str]:
    wanted: dict[str, object] = {"devices": None, "without": None, "n_devices": None, **chosen}
    return [path.parent.name for path in source_paths(root, SPEC, **wanted)]  # type: ignore[arg-type]


def test_devices_come_by_size_and_can_be_named_left_out_and_counted(root: Path) -> None:
    assert devices(root) == [WHOLE, PART, SMALL]
    assert devices(root, without=WHOLE) == [PART, SMALL]
    assert devices(root, without=PART, n_devices=1) == [WHOLE]
    assert devices(root, devices=[SMALL]) == [SMALL]


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"devices": ["h100"]}, "sources.devices: 'h100' is not one of"),
        ({"devices": [PART], "without": PART}, "leaves no"),
    ],
)
def test_wrong_devices_are_named(chosen: dict[str, object], told: str, root: Path) -> None:
    with pytest.raises(UserError, match=told):
        devices(root, **chosen)


def test_first_shapes_are_those_of_the_published_draw(root: Path) -> None:
    tables = [
        table
        for path in source_paths(root, SPEC, devices=None, without=None, n_devices=2)
        for table in read_tables(path, SPEC)
    ]
    kept = first_shapes(tables, SPEC, 2)
    assert len(kept) == 2 * 2
    drawn = {tuple(shape.values()) for shape in SPEC.sample_shapes(2, TRAIN_SEED)}
    assert {tuple(table.task.shape.values()) for table in kept} == drawn
    assert first_shapes(tables, SPEC, None) == tables


def test_the_same_prior_is_trained_once(root: Path, tmp_path: Path) -> None:
    paths = source_paths(root, SPEC, devices=None, without=WHOLE, n_devices=None)
    options = {"mean_options": FEW_TREES, "covariance_options": FEW_STEPS}
    prior = trained_prior(SPEC, paths, None, options, tmp_path)
    assert prior.header["devices"] == [SMALL, PART]
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    assert trained_prior(SPEC, paths, None, {**options, "calibrate": False}, tmp_path).calibrate is False
    assert file.stat().st_mtime_ns == before
    trained_prior(SPEC, paths, 3, options, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
