"""What `tune` says of its choice: how far from the best, after which confirmation, with how many trials saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bo_tuner.cli import main
from tests.toy_kernel import ToySpec

TOY = "tests.toy_kernel"
SHAPE = [f"{name}={size}" for name, size in ToySpec().sample_shapes(1, 2)[0].items()]


@pytest.fixture
def line(toy_data: Path, toy_prior_file: Path, tmp_path: Path) -> list[str]:
    words = ["tune", TOY, *SHAPE, "--replay", "--tables", str(toy_data), "--json", str(tmp_path / "study.json")]
    return [*words, "--prior", str(toy_prior_file)]


def record(tmp_path: Path) -> dict[str, object]:
    read: dict[str, object] = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    return read


def test_who_was_not_calibrated_says_so_and_who_cannot_tell_says_nothing(
    line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line, "--quiet"]) == 0
    out = capsys.readouterr().out
    told = record(tmp_path)["distance"]
    assert isinstance(told, dict)
    assert (
        f"distance       {told['mean']:.1%} slower than the best of all {told['n_configs']} configs is expected" in out
    )
    assert f"with 95% chance less than {told['high']:.1%} (not calibrated on source tasks)" in out
    assert main([*line, "--quiet", "--method", "random"]) == 0
    assert "distance" not in capsys.readouterr().out
    assert record(tmp_path)["distance"] is None


def test_a_prior_trained_by_the_command_is_calibrated(
    toy_data: Path, tmp_path: Path, line: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toy.safetensors"
    assert main(["meta-train", TOY, "--tables", str(toy_data), "--out", str(file)]) == 0
    assert "distance to the best 100%" in capsys.readouterr().err
    assert main([*line, "--quiet", "--prior", str(file)]) == 0
    out = capsys.readouterr().out
    assert "slower than the best of all" in out
    assert "not calibrated" not in out


def test_confirmation_is_told(line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line, "--trials", "6", "--confirm", "1"]) == 0
    out = capsys.readouterr().out
    assert "µs over trials" in out
    assert "and 6\n" in out
    assert "paid           6 trials; " in out
    found = record(tmp_path)
    assert found["n_trials"] == 6
    best = found["best"]
    assert isinstance(best, dict)
    assert len(best["readings_us"]) == 2


def test_saved_trials_are_told(line: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line, "--min-gain", "0.05"]) == 0
    n_saved = record(tmp_path)["n_saved"]
    assert n_saved
    assert f" trials, {n_saved} saved since another promised too little; " in capsys.readouterr().out
