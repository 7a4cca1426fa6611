"""`explain` on records that `tune --json` wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bo_tuner.cli import main
from tests.toy_kernel import ToySpec

TOY = "tests.toy_kernel"
SHAPE = [f"{name}={size}" for name, size in ToySpec().sample_shapes(1, 2)[0].items()]


@pytest.fixture
def explain(
    toy_data: Path, toy_prior_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Tune, change the record if asked to, explain it; gives exit code, output and errors."""

    def tuned(*words: str, change: Callable[[dict[str, Any]], object] = lambda record: None) -> tuple[int, str, str]:
        file, prior = tmp_path / "study.json", ["--prior", str(toy_prior_file)]
        line = ["tune", TOY, *SHAPE, "--replay", "--tables", str(toy_data), "--quiet", "--json", str(file)]
        assert main([*line, *prior, *words]) == 0
        record = json.loads(file.read_text(encoding="utf-8"))
        change(record)
        file.write_text(json.dumps(record), encoding="utf-8")
        capsys.readouterr()
        code = main(["explain", str(file), "--kernel", TOY, *prior])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return tuned


def test_it_prints_expectations_sources_features_and_rules(explain: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = explain("--trials", "8")
    assert (code, err) == (0, "")
    assert "8 trials of meta_gp, seed 0" in out
    assert "% of the best" in out
    n_failed = out.count(" compile ")
    assert out.count(" µs ") == 8 - n_failed + 7  # every measured time, and what was expected after the first trial
    assert "all source tasks" in out
    assert "toy-rows" in out
    assert "against runner-up" in out
    assert "parameter_" in out
    assert "tile × stages over 512" in out


def test_another_method_is_explained_by_the_model_and_said_so(explain: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = explain("--method", "random", "--trials", "4")
    assert code == 0
    assert "the trials were chosen by random" in err
    assert "4 trials of random" in out


def test_a_run_without_a_correct_trial(explain: Callable[..., tuple[int, str, str]]) -> None:
    def all_failed(record: dict[str, Any]) -> None:
        for trial in record["trials"]:
            trial |= {"status": "timeout", "readings_us": []}

    code, out, _ = explain("--trials", "3", change=all_failed)
    assert code == 0
    assert "no trial was correct" in out
    assert "runner-up" not in out


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a field is missing": (lambda record: record.pop("device_facts"), "device_facts: is missing"),
    "a shape that is none": (lambda record: record.update(shape={"rows": 0, "cols": 4}), "rows: 0 is not"),
    "a config that is not valid": (
        lambda record: record["trials"][0]["config"].update(tile=3),
        "is not a valid config of toy",
    ),
    "a status that is none": (lambda record: record["trials"][0].update(status="fine"), "is damaged"),
    "a failure with readings": (lambda record: record["trials"][0].update(status="timeout"), "is damaged"),
    "readings that are no numbers": (lambda record: record["trials"][0].update(readings_us=["fast"]), "is damaged"),
    "a device that is none": (lambda record: record.update(device_facts={}), "is damaged"),
    "another kernel": (lambda record: record.update(kernel="gemm"), "kernel: gemm is not toy"),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_a_damaged_record_is_one_line(
    change: Callable[[dict[str, Any]], object], told: str, explain: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = explain("--trials", "2", change=change)
    assert (code, out) == (2, "")
    assert err.startswith("bo-tuner: error: RECORD: ")
    assert err.count("\n") == 1
    assert told in err


def test_what_is_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    for text, told in (
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[1]", "is no record"),
        ("{}", "kernel: is missing"),
        ('{"kernel": "os.path", "shape": 1, "device_facts": 1, "method": 1, "seed": 1, "trials": 1}', "--kernel: is"),
    ):
        if text is not None:
            file.write_text(text, encoding="utf-8")
        assert main(["explain", str(file)]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1
