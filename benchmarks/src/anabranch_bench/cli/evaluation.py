"""`anabranch bench evaluation`: every stateful workload, every strategy, as papers compare them."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.cli.arguments import check_folders, positive
from anabranch.cli.java import check_java
from anabranch.cli.progress import clear_progress, log_task, show_progress
from anabranch_bench.cli.experiment import FROM, check_alone, read_stored

if TYPE_CHECKING:
    from anabranch.cli.main import Subparsers
    from anabranch_bench.experiments.evaluation import Evaluation
    from anabranch_bench.experiments.evaluation_plan import EvaluationSettings
    from anabranch_bench.results.run_result import RunResult

PARTS = {
    "workloads": "each stateful workload with each strategy; is a rescale seamless?",
    "meces": "latency curves and where the time of a batch goes",
    "drrs": "peak, mean and duration; sensitivity to state size, rate and skew",
    "megaphone": "all at once, one by one, in batches",
    "rhino": "the steady cost of replicas against their handover",
}
EXIT_WRONG = 1
EXIT_INTERRUPTED = 130

EPILOG = """\
examples:
  anabranch bench evaluation --quick --plots plots --markdown report.md
  anabranch bench evaluation --parts workloads --workloads q4 auction --strategies live meces
  anabranch bench evaluation --parts drrs --json drrs.json
  anabranch bench evaluation --from drrs.json --plots plots

Ctrl-C ends the run that is going on; tables, files and plots of what is done are written.
"""


def register(kinds: Subparsers) -> None:
    """Add the benchmark's parser."""
    about = "\n".join(f"  {name:<10} {text}" for name, text in PARTS.items())
    parser = kinds.add_parser(
        "evaluation",
        help="NEXMark, auction, key-count and RIoTBench rescaled with every strategy, verified",
        description=(
            "Rescales running workloads from 2 to 3 workers under an open-loop load, beside "
            "control runs without a rescale, and compares all results with a plain computation.\n\n"
            f"parts:\n{about}"
        ),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--parts", nargs="+", choices=tuple(PARTS), default=list(PARTS), help="(all)")
    add("--workloads", nargs="+", metavar="NAME", help="key-count q3 ... q8 auction etl stats ...")
    add("--strategies", nargs="+", metavar="NAME", help="as in: live meces:batch=5 (all)")
    add("--seconds", type=positive, metavar="S", help="load before and after the move (15)")
    add("--rate", type=positive, help="rows a second of all workloads (a modest one for each)")
    add("--repeat", type=int, metavar="N", help="runs of each; tables have medians (1)")
    add("--quick", action="store_true", help="everything in about 10 minutes: a first look")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there")
    add("--plots", type=Path, metavar="FOLDER", help="draw pictures there (PNG)")
    add("--from", dest="stored", type=Path, metavar="FILE", help=FROM)
    parser.set_defaults(run=run_evaluation)


def run_evaluation(args: argparse.Namespace) -> int:
    """Run and report; what is done is kept when it is interrupted."""
    _check_places(args)
    if args.stored:
        return _show_stored(args)
    settings = settings_from(args)
    _check_libraries(settings)
    check_java()
    from anabranch.loadtest.session import spark_session
    from anabranch_bench.cli.run import stop_on_interrupt
    from anabranch_bench.experiments.evaluation import Evaluation, SparkRunner
    from anabranch_bench.experiments.evaluation_plan import plan, seconds_of_all, warm_ups
    from anabranch_bench.experiments.evaluation_report import to_json
    from anabranch_bench.experiments.time_left import time_left
    from anabranch_bench.reports.report import summary_line, write_json

    runs = plan(settings)
    cold = warm_ups(runs, settings)
    whole = time_left(seconds_of_all((*runs, *cold), settings))
    print(f"{len(runs)} runs and {len(cold)} that warm up, about {whole}.", flush=True)
    with spark_session() as (spark, folder), stop_on_interrupt() as interrupts:

        def stop() -> bool:
            return bool(interrupts)

        runner = SparkRunner(spark, folder, settings, stop)
        evaluation = Evaluation(settings, runner, show_progress, log_task, should_stop=stop)

        def on_run(result: RunResult) -> None:
            clear_progress()
            print(f"    {summary_line(result)}", flush=True)
            write_json(args.json, to_json(evaluation, partial=True))

        evaluation.on_run = on_run
        evaluation.run()
    report(args, evaluation)
    if not evaluation.is_good:
        return EXIT_WRONG
    return EXIT_INTERRUPTED if evaluation.interrupted else 0


def _show_stored(args: argparse.Namespace) -> int:
    """Of an evaluation that was made before: no Spark is needed."""
    from anabranch_bench.experiments.evaluation_report import from_json

    check_alone(args, "json")
    (told,) = read_stored(args.stored, "evaluation")
    evaluation = from_json(told)
    report(args, evaluation)
    return 0 if evaluation.is_good else EXIT_WRONG


def settings_from(args: argparse.Namespace) -> EvaluationSettings:
    """Everything that can be wrong is found here, before Spark starts."""
    from anabranch.errors import InvalidArgument
    from anabranch.migration.strategies import check
    from anabranch_bench.experiments.evaluation_plan import EvaluationSettings
    from anabranch_bench.results.cases import CONTROL, NATIVE, Case

    settings = EvaluationSettings.quick() if args.quick else EvaluationSettings()
    settings = replace(settings, parts=tuple(args.parts), rate=args.rate)
    if args.strategies:
        names = tuple(dict.fromkeys(name for name in args.strategies if name != CONTROL))
        for case in map(Case.parse, names):
            if case.label == NATIVE:
                raise InvalidArgument("Spark's native way is in `anabranch bench rescale`.")
            assert case.strategy is not None
            check(case.strategy, case.options)
        settings = replace(settings, strategies=names, compared=names)
    if args.workloads:
        settings = replace(settings, workloads=tuple(dict.fromkeys(args.workloads)))
    if args.seconds:
        settings = replace(settings, steady=args.seconds)
    if args.repeat is not None:
        settings = replace(settings, repeat=args.repeat)
    return settings


def _check_places(args: argparse.Namespace) -> None:
    check_folders(args, "json", "markdown")
    if args.plots:
        from anabranch.loadtest.timeline_plot import check_matplotlib

        check_matplotlib()
        args.plots.mkdir(parents=True, exist_ok=True)


def _check_libraries(settings: EvaluationSettings) -> None:
    """RIoTBench needs some that nothing else does; its runs would fail one by one."""
    from anabranch_bench.experiments.evaluation_loads import APPS
    from anabranch_bench.workloads.riotbench.family import check_libraries

    if "workloads" in settings.parts and set(APPS) & set(settings.workloads):
        check_libraries(", or name other workloads with --workloads")


def report(args: argparse.Namespace, evaluation: Evaluation) -> None:
    """Tables on the screen; files and pictures where they were asked for."""
    from anabranch_bench.experiments.evaluation_report import markdown, to_json
    from anabranch_bench.reports.report import write_json

    clear_progress()
    partial = evaluation.interrupted
    print(f"\n{markdown(evaluation, partial, {})}", flush=True)
    write_json(args.json, to_json(evaluation, partial))
    pictures = _draw(args, evaluation) if args.plots else {}
    if args.markdown:
        text = markdown(evaluation, partial, pictures)
        args.markdown.write_text(text, encoding="utf-8")
    if partial:
        print("Interrupted: these are the results so far.", file=sys.stderr)


def _draw(args: argparse.Namespace, evaluation: Evaluation) -> dict[str, list[str]]:
    """Paths of the pictures, as the Markdown file has to name them."""
    from anabranch.loadtest.picture_source import note_source
    from anabranch_bench.experiments.evaluation_report import draw

    settings, results = evaluation.settings, evaluation.results
    home = args.markdown.absolute().parent if args.markdown else Path.cwd()
    found = {}
    for part in settings.parts:
        paths = draw(part, settings, results, args.plots)
        found[part] = [os.path.relpath(path.absolute(), home) for path in paths]
        for path in paths:
            note_source(path, args.stored or args.json)
            print(f"picture: {path}")
    return found
