"""`octavo run-batch`: answer a file of requests, and go on where an earlier run ended.

Knows flags and terminals. Does not know lines or what answers them (`octavo.batch`).
"""

from __future__ import annotations

import json
import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from octavo.batch.run import Progress
    from octavo.config.resolved import ResolvedConfig

_INTERRUPTED = 130
#: beside a full body: names, url and escapes
_LINE_ROOM_BYTES = 2**16
#: while a step runs its requests, the next ones are tokenised
_DEFAULT_PER_SEQUENCE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files and every setting."""
    from octavo.config.flags import add_config_arguments

    parser.description = (
        "Each line of the input gets one line in the output. Lines that are answered in the output "
        "are not done again: after an interruption the same command goes on."
    )
    parser.add_argument(
        "-i", "--input-file", type=Path, required=True, metavar="FILE", help="requests, one a line"
    )
    parser.add_argument(
        "-o", "--output-file", type=Path, required=True, metavar="FILE", help="answers, one a line"
    )
    parser.add_argument(
        "--max-concurrency",
        type=int,
        metavar="N",
        help="requests that are on their way at once; default: twice max-num-seqs",
    )
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    add_config_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Answer the file. Exit code 1 when some lines failed, 130 when it was interrupted."""
    from octavo.batch.files import BatchInput, BatchOutput
    from octavo.config.flags import resolve_arguments

    if args.max_concurrency is not None and args.max_concurrency < 1:
        raise ConfigError("--max-concurrency must be at least 1")
    config = _quiet(resolve_arguments(args, access_log=False))
    limit_bytes = config.server.max_body_bytes + _LINE_ROOM_BYTES
    with closing(BatchInput(args.input_file, limit_bytes)) as batch:
        if args.output_file.exists() and args.output_file.samefile(args.input_file):
            raise ConfigError("input and output of the batch are the same file")
        with BatchOutput(args.output_file) as output, _shown(batch.size_bytes) as show:
            progress, is_complete = _answer(args, config, (batch, output), show)
            num_failed = progress.num_failed + output.num_failed
    report = _report(progress, is_complete=is_complete, num_failed=num_failed)
    _print_report(report, args)
    if not is_complete:
        return _INTERRUPTED
    return 1 if num_failed else 0


def _quiet(config: ResolvedConfig) -> ResolvedConfig:
    """Return settings for a server that nobody asks over HTTP, and that logs what went wrong."""
    changes: dict[str, Any] = {"api_key": ()}
    if "server.log-level" not in config.origins:
        changes["log_level"] = "warning"
    return config.with_changes(server=changes)


def _answer(
    args: argparse.Namespace, config: ResolvedConfig, files: Any, show: Callable[[Progress], None]
) -> tuple[Progress, bool]:
    from octavo.batch.run import Progress
    from octavo.serving.logs import configure_logging
    from octavo.serving.startup import begin_without_port

    configure_logging(config.server.log_level, config.server.log_format)
    last = Progress()

    def on_progress(progress: Progress) -> None:
        nonlocal last
        last = progress
        show(progress)

    plan = begin_without_port([config])
    from octavo.batch.local import run_local_batch

    limit = args.max_concurrency or _DEFAULT_PER_SEQUENCE * config.engine.max_num_seqs
    is_complete = run_local_batch(plan, files, limit, on_progress)
    return last, is_complete


@contextmanager
def _shown(size_bytes: int) -> Iterator[Callable[[Progress], None]]:
    """Yield what shows progress: a bar in a terminal, nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("[dim]left[/dim]"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[note]}"),
    )
    with bars.Progress(*columns, console=console, transient=True) as display:
        task = display.add_task("loading", total=size_bytes, note="")

        def show(progress: Progress) -> None:
            note = f"{progress.num_lines:,} lines"
            if progress.num_failed:
                note += f", [red]{progress.num_failed:,} failed[/red]"
            if progress.num_output_tokens:
                note += f", {progress.num_output_tokens / progress.elapsed_s:,.0f} tok/s"
            display.update(task, description="answering", completed=progress.done_bytes, note=note)

        yield show


def _report(progress: Progress, *, is_complete: bool, num_failed: int) -> dict[str, Any]:
    elapsed_s = progress.elapsed_s
    num_now = progress.num_answered + progress.num_failed
    return {
        "is_complete": is_complete,
        "lines": progress.num_lines,
        "before": progress.num_before,
        "answered": progress.num_answered,
        "failed": progress.num_failed,
        "failed_in_file": num_failed,
        "prompt_tokens": progress.num_prompt_tokens,
        "output_tokens": progress.num_output_tokens,
        "elapsed_s": round(elapsed_s, 3),
        "requests_per_s": round(num_now / elapsed_s, 3),
        "output_tokens_per_s": round(progress.num_output_tokens / elapsed_s, 1),
    }


def _print_report(report: dict[str, Any], args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(report))
        return
    rates = f"{report['requests_per_s']:.1f} requests/s"
    rates += f", {report['output_tokens_per_s']:,.0f} output tokens/s"
    counts = f"{report['answered']:,} lines answered, {report['failed']:,} failed"
    lines = [f"{counts} in {report['elapsed_s']:.1f} s ({rates})"]
    if report["before"]:
        lines.append(f"{report['before']:,} lines were answered before")
    if report["failed_in_file"]:
        lines.append(f"{report['failed_in_file']:,} answers in the file are errors")
    if not report["is_complete"]:
        lines.append("interrupted: the same command goes on where this ended")
    print("\n".join(lines), file=sys.stderr)
