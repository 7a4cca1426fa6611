"""What README.md shows must work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bo_tuner import cli
from bo_tuner.evaluators import live
from tests.fake_gpu import FakeGpu
from tests.toy_prior import SPEC, target, toy_prior

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_python_example_is_short_and_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(example.splitlines()) <= 15
    monkeypatch.setattr(live, "LiveEvaluator", FakeGpu)
    monkeypatch.setattr("bo_tuner.load_kernel", lambda name: SPEC, raising=False)
    monkeypatch.setattr("bo_tuner.pretrained.load_prior", lambda spec: toy_prior())
    shape = str(dict(target().task.shape))
    exec(re.sub(r"\{.*?\}", shape, example), {})
    assert "tile" in capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(set(re.findall(r"bo-tuner ([a-z][^`$#\n;]*)", README))))
def test_commands_are_understood(command: str) -> None:
    words = shlex.split(command.replace("<yours>", "7"))
    if words[0] in {
        "tune",
        "space",
        "verify",
        "collect",
        "check",
        "shapes",
        "meta-train",
        "demo",
        "explain",
        "compile",
    }:
        assert cli._parse(words).command == words[0]
