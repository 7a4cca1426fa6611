"""`space` and `shapes`, with a kernel that is loaded by its module's name alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bo_tuner
from bo_tuner.cli import main
from tests.toy_kernel import ToySpec

TOY = "tests.toy_kernel"


def test_space_lists_parameters_rules_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["space", TOY, "rows=5000", "cols=512"]) == 0
    text = capsys.readouterr().out
    assert "264 valid configs" in text
    assert "16 32 64 128 256" in text
    assert "in 73% of configs" in text
    assert "tile × stages over 512" in text


def test_third_kernel_outside_the_package_needs_no_registration(tmp_path: Path) -> None:
    source = Path(sys.modules[ToySpec.__module__].__file__ or "").read_text(encoding="utf-8")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "copy_kernel.py").write_text(source.replace('"toy"', '"mine"'), encoding="utf-8")
    command = [sys.executable, "-m", "bo_tuner.cli", "space", "mine.copy_kernel", "rows=64", "cols=64"]
    environment = os.environ | {"PYTHONPATH": str(Path(bo_tuner.__file__).parent.parent)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert result.stdout.startswith("mine-rows64-cols64-bfloat16-nvidia_h200: ")


def test_shapes_are_printed_as_tune_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shapes", TOY, "--sample", "3", "--seed", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [dict(word.split("=") for word in line.split()) for line in lines] == [
        {name: str(size) for name, size in shape.items()} for shape in ToySpec().sample_shapes(3, 5)
    ]
    assert main(["space", TOY, *lines[0].split()]) == 0
