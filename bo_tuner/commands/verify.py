"""Replay a method on every recorded shape of a split and judge it by the exhaustive best."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bo_tuner.commands.arguments import (
    add_device,
    add_kernel,
    add_search,
    add_tables,
    check_method,
    check_output,
    parse_kernel,
    positive,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_kernel(parser)
    parser.add_argument("--split", metavar="NAME", default="validation", help="which tables (default: validation)")
    add_tables(parser)
    add_device(parser, "device of the tables (default: the only one there, or nvidia_h200)")
    add_search(parser)
    parser.add_argument(
        "--beside",
        metavar="NAME",
        action="append",
        default=[],
        help="another method to judge and print as well, for example cold_gp; can be given again",
    )
    parser.add_argument("--seeds", metavar="N", type=positive, default=1, help="runs a shape (default: 1)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    """Run the protocol, print the summary, write the figures."""
    from bo_tuner.analysis.tables import efficiency_table
    from bo_tuner.commands.figures import library_ratios, random_statistics, repeat_ceiling, summary_frame
    from bo_tuner.commands.locate import prior_of_method, read_repeat, read_split, tables_root
    from bo_tuner.commands.screen import Bar, console
    from bo_tuner.protocol import reading_ceiling, summarise, verify

    spec = parse_kernel(arguments.kernel)
    methods = [arguments.method, *arguments.beside]
    for method in methods:
        check_method(method)
    check_output(arguments.json)
    priors = {method: prior_of_method(method, spec, arguments.prior, arguments.compiled) for method in methods}
    root = tables_root(arguments.tables)
    tables = read_split(root, spec, arguments.device, arguments.split)
    repeat = read_repeat(root, spec, tables[0].task.device.key, arguments.split)
    frames, seconds = {}, {}
    for method in methods:
        start = time.perf_counter()
        with Bar(f"{method}: shape", len(tables), quiet=arguments.quiet, n_lines=8) as bar:
            frames[method] = verify(
                spec,
                tables,
                method,
                prior=priors[method],
                n_trials=arguments.trials,
                seeds=range(arguments.seeds),
                progress=bar.hear,
            )
        seconds[method] = (time.perf_counter() - start) / (len(tables) * arguments.seeds)
    figures = summarise(frames[arguments.method], arguments.split)
    figures |= {"trials": arguments.trials, "n_seeds": arguments.seeds, "seconds_per_run": seconds[arguments.method]}
    figures["library"] = library_ratios(tables, frames[arguments.method])
    figures["beside"] = {method: summarise(frames[method])["efficiency"] for method in arguments.beside}
    figures["beside"]["random (expected)"] = random_statistics(tables, arguments.trials)
    figures["reading_ceiling"] = reading_ceiling(tables)
    figures["repeat_ceiling"] = repeat_ceiling(tables, repeat)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")

    out = console()
    title = f"{spec.name} on {figures['device']}, {arguments.split}: efficiency over {figures['n_tasks']} shapes"
    out.print(efficiency_table(summary_frame({arguments.method: figures["efficiency"], **figures["beside"]}), title))
    ceiling = figures["reading_ceiling"]
    text = f"ceiling, the fastest single reading of all configs: mean {ceiling['mean']:.3f}"
    out.print(f"{text}, worst tenth {ceiling['worst_tenth']:.3f}", highlight=False)
    if (again := figures["repeat_ceiling"]) is not None:
        text = (
            f"ceiling, {again['n_tasks']:.0f} shapes recorded twice: the best config of one recording has in the other"
        )
        text += f" mean {again['mean']:.3f}, worst tenth {again['worst_tenth']:.3f}; it is within 1 % of the best on"
        out.print(
            f"{text} {again['within_1_percent']:.0%}, within 2 % on {again['within_2_percent']:.0%}", highlight=False
        )
    for method in methods:
        out.print(f"{method}: {seconds[method]:.2f} s a run of {arguments.trials} trials", highlight=False)
    ratios = figures["library"]
    if ratios["n_tasks"]:
        chosen = "" if ratios["chosen"] is None else f", chosen config {ratios['chosen']:.3f}"
        text = f"speed over the library, geometric mean: best config {ratios['best']:.3f}{chosen}"
        out.print(text, highlight=False)
    return 0
