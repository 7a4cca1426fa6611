"""Say what recorded tables hold: how much, against the library, and what each parameter value is worth.

For every parameter value: best, the share of shapes whose best config uses it; within 2 %, the share of shapes where
the fastest config with it is within 2 % of the best; rows, the share of all configs that use it; only, the share of
shapes that have no other config; over the rest of the shapes cost, by how much the best of the other configs is slower
on average (1 - best / best without the value), and worst, the same of the worst shape. Second recordings in a folder's
``repeat/`` are left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bo_tuner.commands.arguments import check_output, parse_kernel
from bo_tuner.commands.locate import table_files
from bo_tuner.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from bo_tuner.kernels import KernelSpec
    from bo_tuner.storage.tables import TaskTable

#: Slow shapes that are printed a table; the JSON file has all.
MOST_SLOW = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="table file, or folder of table files")
    parser.add_argument("--kernel", metavar="NAME", help="package.module of the spec, if it is no built-in")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, unrounded")
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(arguments: argparse.Namespace) -> int:
    """Read every file; print its facts, then those of each kernel's parameters."""
    import pandas as pd

    from bo_tuner.analysis.fact_tables import SIZES, SLOW, VALUES, named_once, written
    from bo_tuner.analysis.table_facts import slow_shapes, table_sizes, value_worth
    from bo_tuner.storage.tables import read_metadata, read_tables

    check_output(arguments.json)
    given = parse_kernel(arguments.kernel) if arguments.kernel else None
    shapes: list[dict[str, Any]] = []
    rows: dict[KernelSpec, list[pd.DataFrame]] = {}
    for file in table_files(arguments.paths, repeats=False):
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
        figures = {
            "tables": _records(sizes),
            "slow_shapes": _records(slow),
            "values": {kernel: _records(frame) for kernel, frame in values.items()},
        }
        arguments.json.write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n", encoding="utf-8")

    _print(written(sizes, SIZES), "recorded tables", arguments.markdown)
    for name, n_shapes in zip(sizes["file"], sizes["n_shapes"], strict=True):
        found = slow[slow["file"] == name]
        if found.empty:
            print(f"{name}: library / best: none under .85\n")
            continue
        title = f"{name}: library / best under .85 in {len(found)} of {n_shapes} shapes"
        title += f", the lowest {MOST_SLOW} of them" if len(found) > MOST_SLOW else ""
        _print(written(found.head(MOST_SLOW), SLOW), title, arguments.markdown)
    for spec, frames in rows.items():
        title = f"{spec.name}: parameter values over {len(frames)} shapes, {sum(map(len, frames)):,} configs"
        _print(written(named_once(values[spec.name]), VALUES), title, arguments.markdown)
    return 0


def _rows(table: TaskTable, number: int) -> pd.DataFrame:
    """The configs of a shape as ``analysis.table_facts`` takes them."""
    import numpy as np
    import pandas as pd

    from bo_tuner.storage.alignment import positions

    pool = table.pool
    columns: dict[str, Any] = {"task": number, "final_us": table.final_us, "correct": table.correct}
    for p in pool.parameters:
        codes = np.where(pool.active[p.name], positions(p, pool.columns[p.name]), -1)
        columns[p.name] = pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(list(p.values)))
    return pd.DataFrame(columns)


def _shape(table: TaskTable, file: Path) -> dict[str, Any]:
    """The facts of a shape as ``analysis.table_facts`` takes them."""
    from bo_tuner.space import config_key

    if not table.correct.any():
        raise UserError(f"{file}: {table.task.shape_key}: status: no config is correct")
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
        "best_config": config_key(table.pool.config(int(table.efficiencies.argmax()))),
        "library": table.library,
        "library_us": table.library_us,
    }


def _print(frame: pd.DataFrame, title: str, as_markdown: bool) -> None:
    from bo_tuner.analysis.tables import markdown, plain_table
    from bo_tuner.commands.screen import console

    if as_markdown:
        print(f"{title}\n\n{markdown(frame)}")
    else:
        console().print(plain_table(frame, title))


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON knows them, which has no NaN."""
    rows = frame.to_dict("records")
    return [{str(name): None if cell != cell else cell for name, cell in row.items()} for row in rows]
