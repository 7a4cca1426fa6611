"""`tune` on a GPU, played by a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bo_tuner.cli import main
from bo_tuner.evaluators import live
from tests.fake_gpu import FakeGpu
from tests.toy_prior import target

LINE = ["tune", "tests.toy_kernel", *(f"{name}={size}" for name, size in target().task.shape.items())]


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "gpu_is_there", lambda: True)
    monkeypatch.setattr(live, "LiveEvaluator", FakeGpu)


def test_live_run_reports_the_library_and_no_efficiency(
    toy_prior_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.json"
    assert main([*LINE, "--prior", str(toy_prior_file), "--trials", "5", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "library        memcpy: 12.50 µs" in text
    assert "efficiency" not in text
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["device"] == "nvidia_h200"
    assert record["baselines_us"] == {"memcpy": 12.5}


def test_another_device_than_the_machine_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*LINE, "--method", "random", "--device", "nvidia_b200"]) == 2
    assert "--device: nvidia_b200 is not this machine's GPU, nvidia_h200" in capsys.readouterr().err
