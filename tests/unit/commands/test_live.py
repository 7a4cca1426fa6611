"""`tune` on a GPU, played by a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bo_tuner.cli import main
from bo_tuner.commands import tune
from bo_tuner.evaluators import live
from bo_tuner.evaluators.replay import ReplayEvaluator
from bo_tuner.space import Config
from bo_tuner.study import Measurement
from bo_tuner.task import Task
from tests.fake_gpu import FakeGpu
from tests.toy_prior import target

LINE = ["tune", "tests.toy_kernel", *(f"{name}={size}" for name, size in target().task.shape.items())]


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tune, "UNFINISHED", tmp_path / "unfinished")
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


class Killed(BaseException):
    """What a kill looks like from inside: nothing cleans up."""


def test_a_killed_run_goes_on_where_it_stopped(
    toy_prior_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*LINE, "--prior", str(toy_prior_file), "--trials", "6", "--quiet"]
    assert main(line) == 0
    whole = capsys.readouterr().out
    asked: list[object] = []

    class Mortal(FakeGpu):
        dies_after = 4

        def open(self, task: Task) -> ReplayEvaluator:
            inner = super().open(task)
            evaluate = inner.evaluate

            def counted(config: Config) -> Measurement:
                if len(asked) == self.dies_after:
                    raise Killed
                asked.append(config)
                return evaluate(config)

            monkeypatch.setattr(inner, "evaluate", counted)
            return inner

    monkeypatch.setattr(live, "LiveEvaluator", Mortal)
    with pytest.raises(Killed):
        main(line)
    Mortal.dies_after = 99
    assert main(line) == 0
    captured = capsys.readouterr()
    assert "going on after 4 trials" in captured.err
    assert captured.out == whole
    assert len(asked) == 6
    assert not list(tune.UNFINISHED.iterdir())
