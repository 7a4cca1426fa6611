"""`facts` on tables of the toy kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bo_tuner.cli import main
from bo_tuner.space import config_key
from bo_tuner.storage.tables import read_frames, read_metadata, read_tables, write_tables
from bo_tuner.task import device_named
from tests.conftest import N_TRAIN, N_VALIDATION
from tests.toy_kernel import ToySpec, toy_frames, toy_metadata, write_toy

TOY = "tests.toy_kernel"


def _slow_table(path: Path, n_tasks: int) -> Path:
    """A table whose library is twice as fast as the best config of every shape."""
    spec = ToySpec()
    write_toy(path, spec, n_tasks, seed=3)
    metadata = read_metadata(path)
    rows, tasks = read_frames(path, spec)
    write_tables(path, spec, rows, tasks.assign(library_us=tasks["library_us"] / 2), metadata)
    return path


def test_figures_are_those_of_the_tables(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "facts.json"
    assert main(["facts", str(toy_data), "--kernel", TOY, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    figures = json.loads(file.read_text(encoding="utf-8"))
    train, validation = figures["tables"]
    assert (train["split"], train["n_shapes"]) == ("train", N_TRAIN)
    assert (validation["split"], validation["n_shapes"]) == ("validation", N_VALIDATION)
    tables = read_tables(toy_data / "toy" / "nvidia_h200" / "train.parquet", ToySpec())
    sizes = [len(table) for table in tables]
    assert train["n_configs"] == sum(sizes)
    assert (train["n_configs_min"], train["n_configs_max"]) == (min(sizes), max(sizes))
    assert train["n_configs_median"] == np.median(sizes)
    assert train["n_finalists"] == sum(int((table.n_final > 0).sum()) for table in tables)
    assert train["configs_per_s"] == pytest.approx(sum(sizes) / N_TRAIN)  # a second a shape
    assert train["ratio"] == pytest.approx(1.0, abs=1e-6)  # the toy's library is as fast as the best
    assert train["at_85_percent"] == 100
    assert figures["slow_shapes"] == []
    assert "NVIDIA H200" in text
    assert text.count("library / best: none under .85") == 2
    assert f"toy: parameter values over {N_TRAIN + N_VALIDATION} shapes" in text


def test_worth_of_values_agrees_with_a_plain_count(toy_data: Path, tmp_path: Path) -> None:
    path, file = toy_data / "toy" / "nvidia_h200" / "train.parquet", tmp_path / "facts.json"
    assert main(["facts", str(path), "--kernel", TOY, "--json", str(file)]) == 0
    values = json.loads(file.read_text(encoding="utf-8"))["values"]["toy"]
    spec = ToySpec()
    assert [(row["parameter"], row["value"]) for row in values] == [
        (p.name, value) for p in spec.space.parameters for value in p.values
    ]
    tables = read_tables(path, spec)
    for row in values:
        best, rows, cost = [], 0, []
        for table in tables:
            configs = list(table.pool)
            uses = np.array([config.get(row["parameter"]) == row["value"] for config in configs])
            final_us = np.where(table.correct, table.final_us, np.inf)
            best.append(uses[final_us.argmin()])
            rows += int(uses.sum())
            cost.append(1 - final_us.min() / final_us[~uses].min())
        assert row["best_percent"] == pytest.approx(100 * np.mean(best))
        assert row["rows_percent"] == pytest.approx(100 * rows / sum(map(len, tables)))
        assert row["cost_percent"] == pytest.approx(100 * np.mean(cost))
        assert row["worst_percent"] == pytest.approx(100 * max(cost))


def test_slow_shapes_are_printed_up_to_a_number_and_all_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = _slow_table(tmp_path / "slow.parquet", 25), tmp_path / "facts.json"
    line = ["facts", str(path), "--kernel", TOY, "--markdown"]
    assert main([*line, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    slow = json.loads(file.read_text(encoding="utf-8"))["slow_shapes"]
    assert len(slow) == 25
    assert f"{path}: library / best under .85 in 25 of 25 shapes, the lowest 20 of them" in text
    assert text.count("| memcpy | 0.500 |") == 20
    tables = {table.task.shape_key: table for table in read_tables(path, ToySpec())}
    best = tables[slow[0]["shape"]]
    assert slow[0]["best_config"] == config_key(best.pool.config(int(best.efficiencies.argmax())))
    assert f"| {slow[0]['best_config']} |" in text


def test_markdown_tables_have_a_rule_under_their_headings(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = toy_data / "toy" / "nvidia_h200" / "validation.parquet"
    assert main(["facts", str(path), "--kernel", TOY, "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = "| parameter | value | best % | within 2 % | rows % | only % | cost % | worst % |"
    at = lines.index(headings)
    assert set(lines[at + 1]) <= set("|- ")
    assert lines[at + 2].startswith("| tile | 16 |")
    assert lines[at + 3].startswith("|  | 32 |")


def test_a_table_that_is_named_twice_counts_once(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = toy_data / "toy" / "nvidia_h200" / "validation.parquet"
    assert main(["facts", str(path), str(path), "--kernel", TOY]) == 0
    assert f"over {N_VALIDATION} shapes" in capsys.readouterr().out


def test_two_recordings_of_a_shape_are_two_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "new"):
        write_toy(tmp_path / f"{name}.parquet", ToySpec(), 2, seed=3)
    assert main(["facts", str(tmp_path), "--kernel", TOY]) == 0
    assert "over 4 shapes" in capsys.readouterr().out


def test_tables_without_figures_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, device = ToySpec(), device_named("nvidia_h200")
    rows, tasks = toy_frames(spec, [spec.task({"rows": 64, "cols": 64}, device)])
    empty, failed, folder = tmp_path / "empty.parquet", tmp_path / "failed.parquet", tmp_path / "folder"
    folder.mkdir()
    write_tables(empty, spec, rows[:0], tasks[:0], toy_metadata(device))
    times = ["screening_us", "final_us"]
    rows["status"], rows[times] = "compile", np.nan
    write_tables(failed, spec, rows, tasks, toy_metadata(device))
    told = {
        empty: f"{empty}: shapes: 0 is not at least 1",
        failed: f"{failed}: rows64-cols64: status: no config is correct",
        folder: f"PATH: {folder} holds no table file (*.parquet)",
        tmp_path / "nowhere": f"{tmp_path / 'nowhere'}: there is no such file",
    }
    for path, text in told.items():
        assert main(["facts", str(path), "--kernel", TOY]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == f"bo-tuner: error: {text}\n"


def test_bad_options_are_one_line(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", str(toy_data), "--kernel", TOY, "--json", "/nowhere/x.json"]) == 2
    assert "file: /nowhere/x.json cannot be written" in capsys.readouterr().err
    assert main(["facts", str(toy_data), "--kernel", "gemm"]) == 2
    assert "kernel: toy is not gemm" in capsys.readouterr().err
    assert main(["facts"]) == 2
    assert "PATH" in capsys.readouterr().err
