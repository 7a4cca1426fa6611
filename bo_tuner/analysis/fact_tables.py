"""How the frames of ``table_facts`` are printed: headings, and what is written under them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import pandas as pd

#: Heading → what a cell says, a format string over the columns of a row.
Layout = Mapping[str, str]

SIZES: Layout = {
    "kernel": "{kernel}",
    "device": "{device}",
    "split": "{split}",
    "shapes": "{n_shapes:,}",
    "configs": "{n_configs:,}",
    "fewest / median / most": "{n_configs_min:,} / {n_configs_median:,.0f} / {n_configs_max:,}",
    "finalists": "{n_finalists:,}",
    "timed a second (under 15 µs)": "{configs_per_s:,.0f} ({configs_per_s_short:,.0f})",
    "library / best (lowest)": "{ratio:.3f} ({ratio_min:.3f})",
    "at .85 / .75, %": "{at_85_percent:.1f} / {at_75_percent:.1f}",
}
SLOW: Layout = {
    "shape": "{shape}",
    "best µs": "{best_us:.2f}",
    "library µs": "{library_us:.2f}",
    "library": "{library}",
    "ratio": "{ratio:.3f}",
    "best config": "{best_config}",
}
VALUES: Layout = {
    "parameter": "{parameter}",
    "value": "{value}",
    "best %": "{best_percent:.1f}",
    "within 2 %": "{near_percent:.1f}",
    "rows %": "{rows_percent:.1f}",
    "only %": "{only_percent:.1f}",
    "cost %": "{cost_percent:.2f}",
    "worst %": "{worst_percent:.1f}",
}


class _Dashes(string.Formatter):
    """Writes a dash where there is no number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "–" if pd.isna(value) else str(super().format_field(value, format_spec))


def written(frame: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """A frame as text, one column a heading of the layout."""
    rows = [{str(column): cell for column, cell in row.items()} for row in frame.to_dict("records")]
    dashes = _Dashes()
    return pd.DataFrame({heading: [dashes.vformat(text, (), row) for row in rows] for heading, text in layout.items()})


def named_once(values: pd.DataFrame) -> pd.DataFrame:
    """Parameter values with the name of a parameter at its first value only."""
    return values.assign(parameter=values["parameter"].mask(values["parameter"].duplicated(), ""))
