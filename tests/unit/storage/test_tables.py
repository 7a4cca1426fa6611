from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bo_tuner.errors import UserError
from bo_tuner.storage.schema import device_from_json, device_to_json, tasks_path
from bo_tuner.storage.tables import check_tables, find_tables, read_frames, read_metadata, read_tables, write_tables
from bo_tuner.study import Status
from bo_tuner.task import device_named
from tests.toy_kernel import ToySpec, runtime_us, toy_frames, toy_metadata, write_toy
from tests.toy_prior import SPEC

DEVICE = device_named("nvidia_h200")
Frames = tuple[pd.DataFrame, pd.DataFrame]


def frames(n_tasks: int = 2) -> Frames:
    return toy_frames(SPEC, [SPEC.task(shape, DEVICE) for shape in SPEC.sample_shapes(n_tasks, 1)])


def write(path: Path, rows: pd.DataFrame, tasks: pd.DataFrame) -> Path:
    write_tables(path, SPEC, rows, tasks, toy_metadata(DEVICE))
    return path


def test_read_returns_what_was_written(tmp_path: Path) -> None:
    tables = read_tables(write_toy(tmp_path / "train.parquet", SPEC, 3, 1), SPEC)
    assert [dict(table.task.shape) for table in tables] == SPEC.sample_shapes(3, 1)
    for table in tables:
        expected = runtime_us(table.pool)
        assert table.final_us[table.correct] == pytest.approx(expected[table.correct], rel=1e-6)
        assert table.status[36] == Status.COMPILE
        assert np.isnan(table.reading_us[36])
        assert table.efficiency(36) == 0.0
        best = int(np.argmin(np.where(table.correct, expected, np.inf)))
        assert table.efficiency(best) == 1.0
        assert table.efficiencies.max() == 1.0
        assert table.library == "memcpy"
        assert table.n_final[best] == 20


def test_rows_may_stand_in_any_order(tmp_path: Path) -> None:
    rows, tasks = frames()
    straight = read_tables(write(tmp_path / "a.parquet", rows, tasks), SPEC)
    mixed = read_tables(write(tmp_path / "b.parquet", rows.sample(frac=1.0, random_state=0), tasks), SPEC)
    for a, b in zip(straight, mixed, strict=True):
        np.testing.assert_array_equal(a.final_us, b.final_us)
        np.testing.assert_array_equal(a.status, b.status)


def test_device_survives(tmp_path: Path) -> None:
    part = device_named("nvidia_h200_72_sms")
    assert device_from_json(device_to_json(part)) == part
    path = write_toy(tmp_path / "train.parquet", SPEC, 1, 1, "nvidia_h200_72_sms")
    assert read_tables(path, SPEC)[0].task.device == part


def test_parts_can_be_merged(tmp_path: Path) -> None:
    paths = [write_toy(tmp_path / f"{seed}.parquet", SPEC, 2, seed) for seed in (1, 2)]
    parts = [read_frames(path, SPEC) for path in paths]
    merged = write(tmp_path / "all.parquet", pd.concat([p[0] for p in parts]), pd.concat([p[1] for p in parts]))
    assert [len(table) for table in read_tables(merged, SPEC)] == [
        len(table) for path in paths for table in read_tables(path, SPEC)
    ]


def drop_config(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    return rows.drop(index=5), tasks


def repeat_config(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    return pd.concat([rows, rows.iloc[[5]]]), tasks


def foreign_config(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    rows.loc[5, "stages"] = 9
    return rows, tasks


def endless_time(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    rows.loc[5, "final_us"] = np.inf
    return rows, tasks


def time_of_failure(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    rows.loc[36, "screening_us"] = 3.0
    return rows, tasks


def unknown_status(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    rows.loc[36, "status"] = "broken"
    return rows, tasks


def unlisted_task(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    return rows, tasks.iloc[:3]


def empty_task(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    return rows[rows["rows"] == tasks["rows"].iloc[0]], tasks


def neutral_written(rows: pd.DataFrame, tasks: pd.DataFrame) -> Frames:
    rows["split"] = rows["split"].fillna(1)
    return rows, tasks


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (drop_config, "is missing"),
        (repeat_config, "recorded twice"),
        (foreign_config, "is not a valid config"),
        (endless_time, "final_us"),
        (time_of_failure, "screening_us"),
        (unknown_status, "status: 'broken'"),
        (unlisted_task, "is not in bad_tasks.parquet"),
        (empty_task, "has no rows"),
        (neutral_written, "split: must be null"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_spoilt_table_is_one_line_with_the_file(tmp_path: Path, spoil: Callable[..., Frames], words: str) -> None:
    path = write(tmp_path / "bad.parquet", *spoil(*frames(4)))
    with pytest.raises(UserError, match=words) as caught:
        read_tables(path, SPEC)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_tables(tmp_path / "none.parquet", SPEC)
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(UserError, match="Parquet"):
        read_tables(text, SPEC)
    plain = tmp_path / "plain.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(plain)
    with pytest.raises(UserError, match=r"bo_tuner\.schema_version is missing"):
        read_tables(plain, SPEC)
    lonely = write(tmp_path / "lonely.parquet", *frames())
    tasks_path(lonely).unlink()
    with pytest.raises(UserError, match="lonely_tasks"):
        read_tables(lonely, SPEC)


def test_other_schema_version_space_or_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "train.parquet", *frames())
    table = pq.read_table(path)

    def with_metadata(name: str, value: str) -> Path:
        changed = tmp_path / f"{name}.parquet"
        pq.write_table(
            table.replace_schema_metadata({**table.schema.metadata, f"bo_tuner.{name}".encode(): value}), changed
        )
        return changed

    with pytest.raises(UserError, match="schema_version: 0 is not 2"):
        read_tables(with_metadata("schema_version", "0"), SPEC)
    with pytest.raises(UserError, match="another version of toy's search space"):
        read_tables(with_metadata("space", "x"), SPEC)
    with pytest.raises(UserError, match="kernel: gemm is not toy"):
        read_tables(with_metadata("kernel", "gemm"), SPEC)
    with pytest.raises(UserError, match="device: cannot be read"):
        read_tables(with_metadata("device", "{}"), SPEC)
    fewer = tmp_path / "fewer.parquet"
    pq.write_table(table.drop_columns(["rel_error"]), fewer)
    with pytest.raises(UserError, match="column rel_error is missing"):
        read_tables(fewer, SPEC)


def test_write_names_the_missing_column(tmp_path: Path) -> None:
    rows, tasks = frames()
    with pytest.raises(UserError, match="final_us"):
        write(tmp_path / "train.parquet", rows.drop(columns="final_us"), tasks)
    assert not (tmp_path / "train.parquet").exists()


def test_find_tables(tmp_path: Path) -> None:
    for device in ("nvidia_h200", "nvidia_h200_72_sms"):
        write_toy(tmp_path / "toy" / device / "train.parquet", SPEC, 1, 1, device)
    assert [path.parent.name for path in find_tables(tmp_path, "toy")] == ["nvidia_h200", "nvidia_h200_72_sms"]
    assert len(find_tables(tmp_path, "toy", "NVIDIA H200", "*")) == 1
    with pytest.raises(UserError, match="no table"):
        find_tables(tmp_path, "toy", split="test")


def test_metadata_is_complete(tmp_path: Path) -> None:
    metadata = read_metadata(write_toy(tmp_path / "train.parquet", SPEC, 1, 1))
    assert set(metadata) == {
        *("schema_version", "kernel", "dtype", "device", "space", "space_version", "source_hash", "timing_policy"),
        "versions",
    }


def test_check_accepts_good_tables(tmp_path: Path) -> None:
    train = write_toy(tmp_path / "train.parquet", SPEC, 3, 1)
    write_toy(tmp_path / "validation.parquet", SPEC, 2, 2)
    report = check_tables(train, ToySpec())
    assert report.startswith("3 tasks, ")
    assert "\n" not in report


def test_check_refuses_a_best_config_that_was_not_retimed(tmp_path: Path) -> None:
    rows, tasks = frames()
    rows.loc[rows["final_us"].idxmin(), "n_final_readings"] = 0
    with pytest.raises(UserError, match="was not re-timed"):
        check_tables(write(tmp_path / "train.parquet", rows, tasks), SPEC)


def test_check_refuses_a_wrong_count(tmp_path: Path) -> None:
    rows, tasks = frames()
    tasks["n_configs"] += 1
    with pytest.raises(UserError, match="n_configs"):
        check_tables(write(tmp_path / "train.parquet", rows, tasks), SPEC)


def test_check_refuses_a_shape_in_two_splits(tmp_path: Path) -> None:
    write_toy(tmp_path / "train.parquet", SPEC, 3, 1)
    path = write_toy(tmp_path / "validation.parquet", SPEC, 2, 1)
    with pytest.raises(UserError, match=r"is in train\.parquet too"):
        check_tables(path, SPEC)
