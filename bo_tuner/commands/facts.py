"""Say what recorded tables hold: how much, against the library, and what each parameter value is worth.

For every parameter value: best, the share of shapes whose best config uses it; within 2 %, the share of shapes where
the fastest config with it is within 2 % of the best; rows, the share of all configs that use it; cost, by how much
the best of the other configs is slower on average (1 - best / best without it); worst, the same of the worst shape.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_tuner.commands.arguments import check_output, parse_kernel
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.tables import TaskTable

#: Slow shapes that are printed a table; the JSON file has all.
MOST_SLOW = 20

#: What is printed of a frame: column → its heading and how a cell is written.
Layout = Mapping[str, tuple[str, str]]
SIZES: Layout = {
    **{name: (name, "{}") for name in ("kernel", "device", "split")},
    "n_shapes": ("shapes", "{:,}"),
    "n_configs": ("configs", "{:,}"),
    "n_configs_min": ("fewest a shape", "{:,}"),
    "n_configs_median": ("median", "{:,.0f}"),
    "n_configs_max": ("most", "{:,}"),
    "n_finalists": ("finalists", "{:,}"),
    "configs_per_s": ("timed a second", "{:,.0f}"),
    "configs_per_s_short": ("under 15 µs", "{:,.0f}"),
    "ratio": ("library / best", "{:.3f}"),
    "ratio_min": ("lowest", "{:.3f}"),
    "slow_mark_percent": ("at .85", "{:.1f} %"),
    "very_slow_mark_percent": ("at .75", "{:.1f} %"),
}
SLOW: Layout = {
    "shape": ("shape", "{}"),
    "best_us": ("best µs", "{:.2f}"),
    "library_us": ("library µs", "{:.2f}"),
    "library": ("library", "{}"),
    "ratio": ("ratio", "{:.3f}"),
    "best_config": ("best config", "{}"),
}
VALUES: Layout = {
    "parameter": ("parameter", "{}"),
    "value": ("value", "{}"),
    "best_percent": ("best %", "{:.1f}"),
    "near_percent": ("within 2 %", "{:.1f}"),
    "rows_percent": ("rows %", "{:.1f}"),
    "cost_percent": ("cost %", "{:.2f}"),
    "worst_percent": ("worst %", "{:.1f}"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="table file, or folder of table files")
    parser.add_argument(
        "--kernel", metavar="NAME", help="package.module of the spec, for a kernel that is not built in"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, unrounded")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    """Read every file; print its facts, then those of each kernel's parameters."""
    import pandas as pd

    from bo_tuner.analysis.table_facts import slow_shapes, table_sizes, value_worth
    from bo_tuner.storage.tables import read_metadata, read_tables

    check_output(arguments.json)
    given = parse_kernel(arguments.kernel) if arguments.kernel else None
    shapes: list[dict[str, Any]] = []
    rows: dict[KernelSpec, list[pd.DataFrame]] = {}
    for file in _files(arguments.paths):
        spec = given or parse_kernel(read_metadata(file)["kernel"])
        tables = read_tables(file, spec)
        if not tables:
            raise UserError(f"{file}: shapes: 0 is not at least 1")
        for table in tables:
            # Numbers tell shapes apart, not names: two files may have recorded the same shape.
            rows.setdefault(spec, []).append(_rows(table, len(shapes)))
            shapes.append(_shape(table, file))
    tasks = pd.DataFrame(shapes)
    sizes, slow = table_sizes(tasks), slow_shapes(tasks)
    values = {
        spec.name: value_worth(pd.concat(frames, ignore_index=True), [p.name for p in spec.space.parameters])
        for spec, frames in rows.items()
    }
    if arguments.json:
        figures = {"tables": _records(sizes), "slow_shapes": _records(slow)}
        figures |= {"values": {kernel: _records(frame) for kernel, frame in values.items()}}
        text = json.dumps(figures, indent=2, ensure_ascii=False, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")

    _print(sizes, SIZES, "recorded tables", arguments.markdown)
    for table in sizes.itertuples():
        found = slow[slow["file"] == table.file]
        name = f"{table.kernel} on {table.device}, {table.split}"
        shown = f", the lowest {MOST_SLOW}" if len(found) > MOST_SLOW else ""
        title = f"{name}: {len(found) or 'none'} of {table.n_shapes} shapes under .85 of library / best{shown}"
        _print(found.head(MOST_SLOW), SLOW, title, arguments.markdown)
    for spec, frames in rows.items():
        frame = values[spec.name]
        # A parameter is named once, at its first value.
        frame = frame.assign(parameter=frame["parameter"].mask(frame["parameter"].duplicated(), ""))
        title = f"{spec.name}: parameter values over {len(frames)} shapes, {sum(map(len, frames)):,} configs"
        _print(frame, VALUES, title, arguments.markdown)
    return 0


def _files(paths: list[Path]) -> list[Path]:
    """The table files that the paths name, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        files = [file for file in files if not file.stem.endswith("_tasks")]
        if not files:
            raise UserError(f"PATH: {path} holds no table file (*.parquet)")
        found |= dict.fromkeys(files)
    return list(found)


def _rows(table: TaskTable, number: int) -> pd.DataFrame:
    """The configs of a shape as ``analysis.table_facts`` takes them."""
    import numpy as np
    import pandas as pd

    from bo_tuner.storage.alignment import positions

    pool = table.pool
    columns: dict[str, Any] = {"task": number, "final_us": table.final_us, "correct": table.correct}
    for p in pool.parameters:
        codes = np.where(pool.active[p.name], positions(p, pool.columns[p.name]), -1)
        columns[p.name] = pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(p.values))
    return pd.DataFrame(columns)


def _shape(table: TaskTable, file: Path) -> dict[str, Any]:
    """The facts of a shape as ``analysis.table_facts`` takes them."""
    import numpy as np

    if not table.correct.any():
        raise UserError(f"{file}: {table.task.shape_key}: status: no config is correct")
    best = table.pool.config(int(np.argmin(np.where(table.correct, table.final_us, np.inf))))
    return {
        "file": str(file),
        "kernel": table.spec.name,
        "device": table.task.device.name,
        "split": file.stem,
        "shape": table.task.shape_key,
        "n_configs": len(table),
        "n_finalists": int((table.n_final > 0).sum()),
        "collect_s": float((table.facts or {}).get("collect_s") or "nan"),
        "best_us": table.best_us,
        "best_config": ",".join(f"{name}={best[name]}" for name in sorted(best)),
        "library": table.library,
        "library_us": table.library_us,
    }


def _print(frame: pd.DataFrame, layout: Layout, title: str, as_markdown: bool) -> None:
    """A frame as its layout says; the title alone when it has no rows."""
    import pandas as pd

    from bo_tuner.analysis.tables import markdown, plain_table
    from bo_tuner.commands.screen import console

    shown = pd.DataFrame(
        {
            label: ["–" if pd.isna(cell) else form.format(cell) for cell in frame[name]]
            for name, (label, form) in layout.items()
        }
    )
    if as_markdown:
        print(f"{title}\n" if shown.empty else f"{title}\n\n{markdown(shown)}")
    elif shown.empty:
        console().print(title, highlight=False)
    else:
        console().print(plain_table(shown, title))


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON knows them, which has no NaN."""
    return [{name: None if cell != cell else cell for name, cell in row.items()} for row in frame.to_dict("records")]
