"""The options that say what is wrong with a graph, for the commands that look for the cause."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.console import tell
from scanopt_cli.errors import ScanoptError

if TYPE_CHECKING:
    from scanopt_cli.culprits.properties import Limits, Property
    from scanopt_cli.ir.graph import Graph

Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="The mode that compiles the graph: default, vm, cvm, numba, jax, another mode of "
        "PyTensor's, or plain for none.",
    ),
]
Check = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Run this on the graph, {} being its path: it is broken if this fails. For what "
        "passes do: PyTensor's rewrites inside of the command are not counted.",
    ),
]
Raises = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The graph is broken if compiling raises an error with this text; '' for any.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(min=0, help="How far values may be apart, as a fraction of them."),
]
Runs = Annotated[int, typer.Option(min=1, help="How many random runs, beside recorded ones.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random inputs.")]
Timeout = Annotated[
    float,
    typer.Option(
        min=1, max=1_000_000, help="Seconds of processor time of each evaluation and pass."
    ),
]
Memory = Annotated[
    float, typer.Option(min=0.5, max=4_096, help="GB of memory that passes may use.")
]

Repro = Annotated[
    Path | None,
    typer.Option(
        "--repro",
        metavar="FILE.py",
        help="Write the graph here as a script that shows what PyTensor compiles wrongly, without "
        "scanopt; or one on which a pass fails, with it.",
    ),
]


def write_repro(graph: Graph, wrong: Property, limits: Limits, path: Path) -> None:
    """Write a broken graph as a script, and say so.

    Raises
    ------
    ScanoptError
        If PyTensor alone compiles it right, or it cannot be written.
    """
    from scanopt_cli.culprits.repro import repro

    repro(graph, wrong, limits).save(path)
    tell(f"wrote {path}")


def write_pass_repro(graph: Graph, pipeline: str, why: str, path: Path) -> None:
    """Write a graph on which a pass fails as a script, and say so.

    Raises
    ------
    ScanoptError
        If it cannot be written.
    """
    from scanopt_cli.culprits.repro import pass_repro

    pass_repro(graph, pipeline, why).save(path)
    tell(f"wrote {path}")


def property_of(
    mode: str, check: str | None, raises: str | None, rtol: float | None, runs: int, seed: int
) -> Property:
    """Return the property that the options name.

    Raises
    ------
    ScanoptError
        If they name two.
    """
    from scanopt_cli.culprits.properties import CommandFails, CompilingRaises, ValuesDiffer

    if check is not None and raises is not None:
        raise ScanoptError("are two properties", where="--check and --raises", hint="give one")
    if check is not None:
        return CommandFails(command=check)
    if raises is not None:
        return CompilingRaises(compiled_by=mode, error=raises)
    return ValuesDiffer(compiled_by=mode, rtol=rtol, runs=runs, seed=seed)


def limits_of(timeout: float, memory: float) -> Limits:
    """Return the bounds that the options name."""
    from scanopt_cli.culprits.properties import Limits

    return Limits(timeout=timeout, memory=int(memory * 2**30))
