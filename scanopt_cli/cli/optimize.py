"""``scanopt optimize``: run passes on graphs and show what they did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.console import plug_in_warnings
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.graph_files import graph_files
from scanopt_cli.cli.optimizing import DiffKind, Optimizing, Shown, Summed
from scanopt_cli.cli.options import (
    AllowPackages,
    ClusterAddress,
    FilesFrom,
    Force,
    Format,
    GraphFiles,
    HtmlFile,
    Jobs,
    ListFormat,
    ListOutputFormat,
    Modes,
    OutputFile,
    Pipeline,
    SchedulerFile,
    StepCode,
    Trust,
    require_page_for,
    require_use_of_force,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import json_list, print_blocks
from scanopt_cli.cli.targets import targets
from scanopt_cli.cli.where import where_to_work
from scanopt_cli.errors import ScanoptError


def optimize(
    graphs: GraphFiles = None,
    files_from: FilesFrom = None,
    passes: Pipeline = "default",
    output: OutputFile = None,
    force: Force = False,
    diff: Annotated[
        DiffKind,
        typer.Option(
            help="Show what changed in all: dprint trees, matched graphs as `scanopt diff` does, "
            "or nothing."
        ),
    ] = DiffKind.NONE,
    patch: Annotated[
        bool, typer.Option("--patch", "-u", help="The same as --diff structural.")
    ] = False,
    stat: Annotated[
        bool, typer.Option("--stat", help="Show how many changes each loop has, and no more.")
    ] = False,
    print_changed: Annotated[
        bool,
        typer.Option(
            "--print-changed",
            help="Show what each pass changes, on stderr, as it has run: trees, or as --diff says.",
        ),
    ] = False,
    lines: Annotated[int, typer.Option(min=0, help="Longest diff, in lines; 0 for no limit.")] = 60,
    depth: Annotated[
        int | None, typer.Option(min=1, help="How deep the trees are printed.")
    ] = None,
    time_passes: Annotated[
        bool,
        typer.Option(
            "--time-passes", help="Show the wall time of each pass, and of what --verify compiles."
        ),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Stop after so many rewrites, for bisection.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit with 1 if `scanopt check` finds anything that the passes mend."
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Evaluate the result against the original before writing it."
        ),
    ] = False,
    mode: Modes = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show what `check` finds in the result, only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what each pass did, missed and found out.")
    ] = False,
    html: HtmlFile = None,
    code: StepCode = False,
    output_format: ListOutputFormat = ListFormat.RICH,
    jobs: Jobs = None,
    cluster: ClusterAddress = None,
    scheduler_file: SchedulerFile = None,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Run passes on graphs; show what they did on one screen, and what is left to do."""
    from scanopt_cli.gates.passes_gate import PassesGate, require_mended
    from scanopt_cli.reports.check_totals import total
    from scanopt_cli.reports.document import Paragraph

    if mode and not verify:
        raise ScanoptError("is for --verify", where="--mode", hint="give both, or neither")
    require_use_of_force(output, force=force)
    files = graph_files(graphs, files_from)
    places = {} if output is None else targets(list(files), output, force=force)
    require_page_for(html, code=code)
    require_page(html, files, [("-o", place) for place in places.values()])
    json = json_list(output_format, "optimize")
    gate = PassesGate.here() if check else None

    def require_passes() -> None:
        from scanopt_cli.pipeline.grammar import parse

        with plug_in_warnings():
            sequence = parse(passes)
            if check:
                require_mended(sequence)

    shown = Shown(
        format=output_format,
        diff=DiffKind.STRUCTURAL if patch else diff,
        stat=stat,
        lines=lines,
        depth=depth,
        quiet=quiet,
        verbose=verbose,
    )

    def optimizing(path: Path) -> Optimizing:
        return Optimizing(
            passes=passes,
            gate=gate,
            verify=verify,
            modes=tuple(mode or ()),
            limit=limit,
            place=places.get(path),
            draws=html is not None,
            code=code,
            print_changed=print_changed,
            time_passes=time_passes,
            shown=shown,
            json=json,
            trust=trust,
            allow_packages=tuple(allow_package or ()),
        )

    summed = Summed()
    where = where_to_work(jobs, cluster, scheduler_file)
    batch = Batch(files, where, json)
    batch.run(optimizing, summed.take, require_passes)
    if json is None and summed.gate is not None:
        print_blocks(Format(output_format.value), [Paragraph(total(summed.gate))])
    elif json is None and summed.left.graphs > 1 and not quiet:
        closing = [Paragraph(), *map(Paragraph, summed.lines)]
        print_blocks(Format(output_format.value), closing)
    if html is not None:
        write_page(html, summed.parts, batch.failures, verdict=total(summed.left))
    return batch.finish(finding(summed.gate is not None and summed.gate.findings > 0))
