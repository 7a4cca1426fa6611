"""Tables for the screen and for reports."""

from __future__ import annotations

import io

import pandas as pd
from rich.console import Console

from bo_tuner.analysis.tables import efficiency_table, markdown

SUMMARY = pd.DataFrame(
    {"method": ["a", "a", "b"], "trials": [1, 20, 20], "mean": [0.9, 0.99, 0.8]}
    | {name: [0.5, 0.6, 0.7] for name in ("median", "worst_tenth", "p10", "min")}
)


def test_efficiency_table_names_a_method_once() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(efficiency_table(SUMMARY, "toy"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "worst tenth" in text
    assert "0.990" in text
    assert text.count("│ a") == 1


def test_markdown_has_a_header_a_rule_and_a_line_a_row() -> None:
    lines = markdown(SUMMARY).splitlines()
    assert lines[0] == "| method | trials | mean | median | worst tenth | 10th percentile | worst task |"
    assert lines[2] == "| a | 1 | 0.900 | 0.500 | 0.500 | 0.500 | 0.500 |"
    assert len(lines) == 5
