"""``scanopt grad``: the N-th derivative of a graph and the pedigree of its Scans."""

from __future__ import annotations

from typing import Annotated

import typer

from scanopt_cli.cli.console import err, out
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.loading import load_graph
from scanopt_cli.cli.options import (
    AllowPackages,
    Format,
    GraphFile,
    OutputFile,
    OutputFormat,
    Trust,
)


def grad(
    graph: GraphFile,
    order: Annotated[int, typer.Option(min=1, help="How often to differentiate.")] = 1,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Differentiate by this input, by name or '#position'. Repeatable; "
            "without it, by every floating-point input that counts.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option(metavar="I", help="Which output, by position or name.")
    ] = "0",
    show: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print the tree of this Scan too.")
    ] = None,
    output_file: OutputFile = None,
    output_format: OutputFormat = Format.RICH,
    trust: Trust = False,
    allow_package: AllowPackages = None,
) -> ExitCode:
    """Build the N-th derivative; show each order's counts and which Scan is whose pullback."""
    from scanopt_cli.gradients.differentiating import grad as differentiate
    from scanopt_cli.graphs.saving import save
    from scanopt_cli.reports import grad_markdown, grad_rich
    from scanopt_cli.reports.as_json import to_json

    loaded = load_graph(graph, trust=trust, allow_packages=allow_package)
    position = int(output) if output.lstrip("+-").isdigit() else output
    derivative = differentiate(loaded, order=order, wrt=wrt, output=position)
    match output_format:
        case Format.JSON:
            out().out(to_json("grad", derivative))
        case Format.MARKDOWN:
            out().out(grad_markdown.render(derivative, show=show))
        case Format.RICH:
            out().print(grad_rich.render(derivative, show=show))
    if output_file is not None:
        save(derivative.graph, output_file)
        err().print(f"scanopt: wrote {output_file}", soft_wrap=True)
    return ExitCode.CLEAN
