"""`tune --replay`, `verify`, `meta-train`, `check` and `demo` on tables of the toy kernel."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bo_tuner.cli import main
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.kernels import load_kernel
from bo_tuner.space import Config
from bo_tuner.storage.tables import write_tables
from bo_tuner.study import Measurement
from bo_tuner.task import device_named
from tests.toy_kernel import ToySpec, toy_frames, toy_metadata

TOY = "tests.toy_kernel"
SHAPE = [f"{name}={size}" for name, size in ToySpec().sample_shapes(1, 2)[0].items()]


@pytest.fixture
def words(toy_data: Path, toy_prior_file: Path) -> list[str]:
    return ["--tables", str(toy_data), "--prior", str(toy_prior_file)]


def test_tune_prints_ledger_choice_time_and_efficiency(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.json"
    assert main(["tune", TOY, *SHAPE, "--replay", "--json", str(file), *words]) == 0
    captured = capsys.readouterr()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["n_trials"] == len(record["trials"]) == 20
    assert 0.7 < record["efficiency"] <= 1
    assert record["best"]["time_us"] == min(trial["time_us"] for trial in record["trials"] if trial["time_us"])
    assert f"efficiency     {record['efficiency']:.1%} of the best of all" in captured.out
    assert f"its time       {record['best']['time_us']:.2f} µs in trial {record['best']['trial']}" in captured.out
    assert captured.out.count(" correct ") == sum(trial["status"] == "correct" for trial in record["trials"])
    assert "s compiling" in captured.out
    assert captured.err.count("trial ") == 20


def test_a_run_that_promises_little_more_stops_and_says_so(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", TOY, *SHAPE, "--replay", "--min-gain", "0.05", "--quiet", *words]) == 0
    assert "of 20 trials, another promises less than 5.00%" in capsys.readouterr().err


def test_failed_trials_are_in_the_ledger(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tune", TOY, *SHAPE, "--replay", "--method", "random", "--trials", "80", *words]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert "compile" in text
    assert "recorded failure" in text


def test_more_trials_than_configs_stops_with_a_note(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    line = ["tune", TOY, *SHAPE, "--replay", "--method", "random", "--trials", "100000", "--quiet", *words]
    assert main(line) == 0
    captured = capsys.readouterr()
    assert "efficiency     " in captured.out
    assert captured.err.startswith("bo-tuner: note: all ")
    assert captured.err.count("\n") == 1


def test_dimensions_may_follow_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", TOY, "--replay", SHAPE[0], "--trials", "2", *words, SHAPE[1], "--quiet"]) == 0
    assert "chosen config" in capsys.readouterr().out


def test_interrupt_keeps_what_was_measured(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = ReplayEvaluator.evaluate, []

    def evaluate(self: ReplayEvaluator, config: Config) -> Measurement:
        calls.append(config)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(self, config)

    monkeypatch.setattr(ReplayEvaluator, "evaluate", evaluate)
    file = tmp_path / "study.json"
    assert main(["tune", TOY, *SHAPE, "--replay", "--json", str(file), *words]) == 130
    captured = capsys.readouterr()
    assert "chosen config" in captured.out
    assert "interrupted; above is what 3 trials found" in captured.err
    assert json.loads(file.read_text(encoding="utf-8"))["n_trials"] == 3


def test_unrecorded_shape_lists_the_nearest(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", TOY, "rows=3", "cols=5", "--replay", *words]) == 2
    error = capsys.readouterr().err
    assert "rows3-cols5 was not recorded" in error
    assert error.count("-cols") == 4


def test_missing_prior_tells_how_to_train_one(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", TOY, *SHAPE, "--replay", "--tables", str(toy_data)]) == 2
    assert f"train one with: bo-tuner meta-train {TOY}" in capsys.readouterr().err


def test_damaged_prior_is_one_line(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no prior at all")
    assert main(["tune", TOY, *SHAPE, "--replay", "--tables", str(toy_data), "--prior", str(bad)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_corrupt_table_is_one_line(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(toy_data, tmp_path / "data")
    file = tmp_path / "data" / "toy" / "nvidia_h200" / "validation.parquet"
    file.write_bytes(file.read_bytes()[:1000])
    for line in (
        ["verify", TOY, "--method", "random", "--tables", str(tmp_path / "data")],
        ["check", str(file), "--kernel", TOY],
    ):
        assert main(line) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"bo-tuner: error: {file}")
        assert error.count("\n") == 1


def test_verify_writes_the_protocol_figures(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verify.json"
    assert main(["verify", TOY, "--json", str(file), "--quiet", *words]) == 0
    figures = json.loads(file.read_text(encoding="utf-8"))
    named = {name: figures[name] for name in ("kernel", "device", "split", "n_tasks", "method")}
    assert named == {
        "kernel": "toy",
        "device": "nvidia_h200",
        "split": "validation",
        "n_tasks": 4,
        "method": "meta_gp",
    }
    assert list(figures["efficiency"]) == ["1", "2", "3", "5", "10", "20"]
    for statistics in figures["efficiency"].values():
        assert set(statistics) == {"mean", "median", "worst_tenth", "p10", "min"}
        assert 0 <= statistics["min"] <= statistics["worst_tenth"] <= statistics["mean"] <= 1
    assert figures["efficiency"]["20"]["mean"] > 0.85
    assert figures["library"]["best"] == pytest.approx(1.0)
    captured = capsys.readouterr()
    assert "random (expected)" in captured.out
    assert captured.err == ""


def test_verify_says_how_well_a_second_recording_repeats_the_first(
    toy_data: Path, toy_prior_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, file = tmp_path / "data", tmp_path / "verify.json"
    shutil.copytree(toy_data, root)
    line = ["verify", TOY, "--json", str(file), "--quiet", "--trials", "1", "--tables", str(root)]
    line += ["--prior", str(toy_prior_file)]
    assert main(line) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["repeat_ceiling"] is None
    spec, device = load_kernel(TOY), device_named("nvidia_h200")
    tasks = [spec.task(shape, device) for shape in spec.sample_shapes(3, 2)]
    frames = toy_frames(spec, tasks, seed=7)
    write_tables(root / "repeat/toy/nvidia_h200/validation.parquet", spec, *frames, toy_metadata(device))
    assert main(line) == 0
    again = json.loads(file.read_text(encoding="utf-8"))["repeat_ceiling"]
    assert again["n_tasks"] == 3
    assert 0.9 < again["worst_tenth"] <= again["mean"] <= 1
    assert again["within_1_percent"] <= again["within_2_percent"]
    assert "3 shapes recorded twice" in capsys.readouterr().out


def test_verify_judges_other_methods_beside(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "verify.json"
    line = ["verify", TOY, "--json", str(file), "--quiet", "--trials", "3", "--beside", "prior_only", *words]
    assert main(line) == 0
    beside = json.loads(file.read_text(encoding="utf-8"))["beside"]
    assert set(beside) == {"prior_only", "random (expected)"}
    assert list(beside["prior_only"]) == ["1", "2", "3"]
    assert "prior_only" in capsys.readouterr().out


def test_a_prior_that_saw_the_tables_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", TOY, "--split", "train", *words]) == 2
    assert "was trained on" in capsys.readouterr().err


def test_meta_train_writes_a_prior_that_tunes(
    toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toy.safetensors"
    assert main(["meta-train", TOY, "--tables", str(toy_data), "--out", str(file)]) == 0
    told = capsys.readouterr()
    assert f"wrote {file}" in told.out
    assert "covariance 100%" in told.err
    assert main(["meta-train", TOY, "--tables", str(toy_data), "--out", str(file), "--quiet"]) == 0
    assert not capsys.readouterr().err
    line = ["tune", TOY, *SHAPE, "--replay", "--trials", "3", "--quiet", "--tables", str(toy_data)]
    assert main([*line, "--prior", str(file)]) == 0


def test_check_says_a_line_a_file(toy_data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = toy_data / "toy" / "nvidia_h200" / "train.parquet"
    assert main(["check", str(file), "--kernel", TOY]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: ")
    assert main(["check", str(tmp_path)]) == 2
    assert "holds no table file" in capsys.readouterr().err


def test_demo_prints_a_table_and_draws_the_plot(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", TOY, "--shapes", "2", "--trials", "5", "--out", str(tmp_path), *words]) == 0
    text = capsys.readouterr().out
    assert "toy on NVIDIA H200: 5 trials a shape" in text
    assert "bo-tuner tune gemm" in text
    assert (tmp_path / "sample_efficiency.png").read_bytes().startswith(b"\x89PNG")


def test_noise_compares_two_recordings(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = toy_data / "toy" / "nvidia_h200"
    table, other = str(folder / "validation.parquet"), str(folder / "train.parquet")
    assert main(["noise", table, table, "--kernel", TOY]) == 0
    assert "kept" in capsys.readouterr().out
    assert main(["noise", table, other, "--kernel", TOY]) == 2
    assert "has no shape of" in capsys.readouterr().err


def test_check_says_when_the_kernel_has_changed_since(
    toy_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["check", str(toy_data / "toy" / "nvidia_h200" / "train.parquet"), "--kernel", TOY]
    assert main(line) == 0
    assert "note" not in capsys.readouterr().out
    monkeypatch.setattr(load_kernel(TOY), "source_hash", "another")
    assert main(line) == 0
    assert "recorded with another jit source" in capsys.readouterr().out
