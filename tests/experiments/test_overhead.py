from __future__ import annotations

import re

import pytest

from experiments.overhead import main


def test_it_tells_what_every_part_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shapes", "2", "--configs", "300"]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"^(\w+): prior loaded in", told, re.MULTILINE) == ["gemm", "attention"]
    assert len(re.findall(r"a choice without a trial: median \d+ ms", told)) == 2
    assert len(re.findall(r"300 configs: prior of the task \d+ ms once, then a trial: median [\d.]+ ms", told)) == 2


def test_a_device_that_is_not_known_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "abacus"]) == 2
    assert capsys.readouterr().err.startswith("device: 'abacus' is not one of")
