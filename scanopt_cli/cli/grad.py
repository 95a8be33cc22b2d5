"""``scanopt grad``: the N-th derivative of a graph and the pedigree of its Scans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.autodiff.choices import Stage, Strategy
from scanopt_cli.cli.console import status, tell
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.options import (
    AllowPackages,
    Force,
    Format,
    GraphFile,
    HtmlFile,
    Modes,
    OutputFormat,
    Trust,
    require_use_of_force,
)
from scanopt_cli.cli.pages import require_page, write_page
from scanopt_cli.cli.results import print_result
from scanopt_cli.cli.session import session
from scanopt_cli.cli.targets import require_target
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.autodiff.derivative import Derivative


# Seconds of processor time for the check, by whether the user asked for it.
_TIMEOUTS = {True: 300.0, False: 20.0}


def grad(
    graph: GraphFile,
    order: Annotated[int, typer.Option(min=1, help="How often to differentiate.")] = 1,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Differentiate by this input, by name or '#position'. Repeatable; by default by "
            "every floating-point input that the output depends on.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option(metavar="I", help="Which output, by position or name.")
    ] = "0",
    strategy: Annotated[
        list[Strategy] | None,
        typer.Option(
            metavar="STRATEGY",
            help="How to build the derivative: auto, reverse, forward, forward-over-reverse or "
            "taylor. Repeatable, to compare; -o writes the first.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="With --order 2: the whole Hessian, a row an entry.")
    ] = False,
    stage: Annotated[
        list[Stage] | None,
        typer.Option(
            metavar="STAGE",
            help="Rather than strategies, compare orders: count each as it is built, and after "
            "these rewrites: pytensor, scanopt, both (scanopt, then pytensor), or raw for none. "
            "Repeatable.",
        ),
    ] = None,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help="Compare values with another strategy or finite differences, in a child process. "
            "By default the graphs are evaluated as they are, which takes about as long as all "
            "else, 20 seconds of processor time at most, and a comparison that cannot be made is "
            "no failure; with --check the derivative is compiled as well, which takes several "
            "times as long.",
        ),
    ] = None,
    mode: Modes = None,
    lines: Annotated[
        int,
        typer.Option(min=0, help="Cut formulas and pedigree to about as many lines; 0 for none."),
    ] = 40,
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print the tree of this Scan too.")
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("-o", "--output-file", metavar="OUT", help="Write the derivative here."),
    ] = None,
    force: Force = False,
    html: HtmlFile = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Build the N-th derivative; compare what strategies build; show the pedigree of its Scans."""
    from scanopt_cli.autodiff.candidates import compared_strategies
    from scanopt_cli.autodiff.choosing import Choice
    from scanopt_cli.autodiff.differentiating import grad as differentiate
    from scanopt_cli.reports.grad_report import grad_report
    from scanopt_cli.verification.modes import DEFAULT, PLAIN

    if mode and check is False:
        raise ScanoptError("is for the check", where="--mode", hint="leave out --no-check")
    require_use_of_force(output_file, force=force)
    if output_file is not None:
        require_target(output_file, graph, force=force)
    require_page(html, [graph], [("-o", output_file)])
    position = int(output) if output.lstrip("+-").isdigit() else output
    strategies = list(dict.fromkeys(strategy or [Strategy.AUTO]))
    found: list[Derivative] = []
    codes = [ExitCode.CLEAN]
    with session(graph, trust=trust, allow_packages=allow_package) as work:
        loaded = work.load(graph, recorded=check is not False)
        with status(str(graph), "differentiating") as show_progress:
            for name in strategies:
                try:
                    one = differentiate(
                        loaded,
                        order=order,
                        wrt=wrt,
                        output=position,
                        strategy=name,
                        full=full,
                        check=check is not False,
                        modes=mode or (DEFAULT if check else PLAIN),
                        timeout=_TIMEOUTS[check is True],
                        stages=stage or (),
                        compare=not stage and len(strategies) == 1,
                        progress=show_progress,
                    )
                except ScanoptError as error:
                    if not found:
                        raise
                    tell(f"error: {name}: {error}")
                    codes.append(ExitCode.FAILED)
                else:
                    found.append(one)
            derivative = replace(found[0], compared=tuple(found[1:]))
            if not stage and len(strategies) > 1:
                show_progress("counting")
                built = [(Choice(one.strategy, one.reason), one.graph) for one in found]
                derivative = replace(derivative, candidates=compared_strategies(built))
        report = grad_report(
            derivative, show=show, lines=0 if output_format is Format.MARKDOWN else lines
        )
        print_result(output_format, "grad", derivative, report)
        if html is not None:
            from scanopt_cli.page.contents.grad_page import grad_part

            write_page(html, [grad_part(derivative, str(graph))])
        codes += [_code(one, is_asked_for=check is True) for one in found]
        code = _code(found[0], is_asked_for=check is True)
        _write(derivative, output_file, code=code, trust=trust)
    return max(codes)


def _code(derivative: Derivative, *, is_asked_for: bool) -> ExitCode:
    """Return the exit code of a check: wrong values are a finding.

    No comparison at all is a failure if the user asked for one.
    """
    from scanopt_cli.autodiff.derivative import Outcome

    outcome = derivative.check.outcome if derivative.check is not None else None
    if outcome is Outcome.DIFFERS:
        return ExitCode.FINDING
    return ExitCode.FAILED if outcome is Outcome.NOT_CHECKED and is_asked_for else ExitCode.CLEAN


def _write(derivative: Derivative, target: Path | None, *, code: ExitCode, trust: bool) -> None:
    from scanopt_cli.pipeline.optimizing import compile_safe
    from scanopt_cli.serialization.saving import save

    if target is None:
        return
    if code is ExitCode.CLEAN:
        save(compile_safe(derivative.graph), target, trust=trust)
        tell(f"wrote {target}")
    else:
        tell(f"{target} is not written")
