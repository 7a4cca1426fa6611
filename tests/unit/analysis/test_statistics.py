from __future__ import annotations

import pandas as pd
import pytest

from bo_tuner.analysis.statistics import coverage


def test_coverage_counts_what_held() -> None:
    frame = pd.DataFrame(
        {
            "trial": [1, 1, 1, 1, 20, 20],
            "predicted": [0.1, 0.1, 0.1, 0.1, 0.01, 0.03],
            "bound": [0.2, 0.2, 0.2, 0.2, 0.02, 0.04],
            "true": [0.0, 0.2, 0.3, 0.1, 0.0, 0.04],
        }
    )
    told = coverage(frame)
    assert list(told.index) == [1, 20]
    assert told["covered"].tolist() == [0.75, 1.0]
    assert told.loc[1, "true"] == pytest.approx(0.15)
    assert told.loc[20, "predicted"] == pytest.approx(0.02)
    assert (told["low"] < told["covered"]).all()
    assert told.loc[20, "high"] == pytest.approx(1.0)
