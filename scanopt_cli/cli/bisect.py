"""``scanopt bisect``: which rewrite breaks a graph?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import plug_in_warnings, status
from scanopt_cli.cli.exits import ExitCode, finding
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    GraphFile,
    HtmlFile,
    OutputFormat,
    Pipeline,
    Trust,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.properties import (
    Arguments,
    Check,
    LargerThan,
    Memory,
    Mode,
    Raises,
    Repro,
    Rtol,
    Runs,
    Seed,
    SlowerThan,
    Steps,
    Timeout,
    limits_of,
    property_of,
    with_arguments,
    write_pass_repro,
    write_repro,
)
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import require_target, write
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.culprits.culprit import Bisection, Culprit
    from scanopt_cli.culprits.properties import Limits, Property
    from scanopt_cli.ir.graph import Graph


def bisect(
    graph: GraphFile,
    passes: Pipeline = "default",
    mode: Mode = "default",
    check: Check = None,
    raises: Raises = None,
    slower: SlowerThan = None,
    larger: LargerThan = None,
    rtol: Rtol = None,
    arguments: Arguments = None,
    steps: Steps = None,
    runs: Runs = 5,
    seed: Seed = 0,
    timeout: Timeout = 300.0,
    memory: Memory = 8.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output-dir",
            metavar="DIR",
            help="Keep the graphs before and after each rewrite that is found there.",
        ),
    ] = None,
    repro: Repro = None,
    html: HtmlFile = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Find the first rewrite that breaks a graph: of a pass, or of PyTensor's.

    By default, a graph is broken if its values differ from those of the graph as it is, plain or
    compiled. PyTensor's rewrites are to blame if the graph itself is broken once it is compiled, by
    --mode or in the command of --check. Exits with 1 if there is such a rewrite, with 0 if nothing
    is broken.
    """
    from scanopt_cli.culprits.bisecting import bisect as bisect_graph
    from scanopt_cli.pipeline.grammar import parse
    from scanopt_cli.reports.bisect_report import bisect_report

    if repro is not None:
        require_target(repro, graph, force=False)
    if output is not None and not output.is_dir():
        raise ScanoptError(
            "there is no such directory", where=f"-o {output}", hint="create it first"
        )
    require_page(html, [graph], [("--repro", repro)])
    wrong = property_of(mode, check, raises, slower, larger, rtol, runs, seed, arguments, steps)
    limits = limits_of(timeout, memory)
    with plug_in_warnings():
        sequence = parse(passes)
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = with_arguments(work.load(graph, recorded=arguments is None), arguments)
        with status(str(graph), "bisecting") as show_progress:
            found = bisect_graph(
                loaded,
                sequence,
                wrong=wrong,
                limits=limits,
                progress=show_progress,
            )
        print_result(output_format, "bisect", found, bisect_report(str(graph), found))
        for number, culprit in enumerate(found.culprits, 1):
            if output is not None:
                _keep(
                    culprit, output, "" if len(found.culprits) == 1 else f"{number}.", trust=trust
                )
        if html is not None:
            from scanopt_cli.page.contents.bisect_page import bisect_part

            write_page(html, [bisect_part(found, str(graph))])
        if repro is not None:
            _write_repro(loaded, found, wrong, limits, repro)
    return finding(bool(found.culprits))


def _write_repro(
    graph: Graph, found: Bisection, wrong: Property, limits: Limits, path: Path
) -> None:
    """Write what PyTensor compiles wrongly: the graph, or what a pass has made of it.

    Or the graph on which a pass fails.
    """
    from scanopt_cli.culprits.culprit import Maker

    for culprit in found.culprits:
        if culprit.failing is not None:
            assert culprit.before is not None  # a pass fails on a graph
            write_pass_repro(culprit.before, culprit.failing, culprit.why, path)
            return
    if not any(culprit.maker is Maker.PYTENSOR for culprit in found.culprits):
        raise ScanoptError(
            "is for what PyTensor compiles wrongly, and for passes that fail; neither is to blame",
            where="--repro",
        )
    passes = [culprit for culprit in found.culprits if culprit.maker is Maker.SCANOPT]
    made = passes[0].after if passes else graph
    assert made is not None  # else nothing of PyTensor's would have been looked for
    write_repro(made, wrong, limits, path)


def _keep(culprit: Culprit, directory: Path, prefix: str, *, trust: bool) -> None:
    """Write the graphs around a rewrite, as far as there are some."""
    for name, graph in (("before", culprit.before), ("after", culprit.after)):
        if graph is not None:
            write(graph, directory / f"{prefix}{name}.pkl", trust=trust)
