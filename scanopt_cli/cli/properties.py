"""The options that say what is wrong with a graph, for the commands that look for the cause."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scanopt_cli.cli.completion import complete_mode
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
        autocompletion=complete_mode,
    ),
]
Check = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Run this on the graph, {} being its path: it is broken if this ends with another "
        "exit code than 0, by a signal, or not in time; 125 leaves it open. `bisect` counts, and "
        "limits, PyTensor's rewrites of all that it compiles.",
    ),
]
Raises = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The graph is broken if compiling raises an error with this text; '' for any.",
    ),
]
SlowerThan = Annotated[
    str | None,
    typer.Option(
        "--slower",
        metavar="TIME",
        help="The graph is broken if a compiled call takes more processor time: 2ms, 0.5s.",
    ),
]
LargerThan = Annotated[
    str | None,
    typer.Option(
        "--larger",
        metavar="SIZE",
        help="The graph is broken if a compiled call takes more memory: 100MB, 1.5GB.",
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
        min=1,
        max=1_000_000,
        help="Seconds of processor time of each evaluation and pass; of a command, seconds.",
    ),
]
Memory = Annotated[
    float, typer.Option(min=0.5, max=4_096, help="GB of memory that passes and commands may use.")
]
Arguments = Annotated[
    Path | None,
    typer.Option(
        "--arguments",
        metavar="FILE",
        help="Values of the inputs, by name, in a file that numpy.savez wrote. They take the place "
        "of recorded calls.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        min=1,
        max=10**9,
        help="How many steps loops have, where drawn arguments decide it: with --slower and "
        "--larger. By default 1000.",
    ),
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
    mode: str,
    check: str | None,
    raises: str | None,
    slower: str | None,
    larger: str | None,
    rtol: float | None,
    runs: int,
    seed: int,
    arguments: Path | None,
    steps: int | None,
) -> Property:
    """Return the property that the options name.

    Raises
    ------
    ScanoptError
        If they name two, a bound is none, or one of them is for other properties.
    """
    from scanopt_cli.culprits.properties import CommandFails, CompilingRaises, ValuesDiffer

    named = {"--check": check, "--raises": raises, "--slower": slower, "--larger": larger}
    given = [option for option, value in named.items() if value is not None]
    if len(given) > 1:
        raise ScanoptError("are two properties", where=" and ".join(given[:2]), hint="give one")
    if check is not None and arguments is not None:
        raise ScanoptError(
            "are not for a command, which gets the graph alone",
            where="--arguments",
            hint="let the command read them",
        )
    if steps is not None and slower is None and larger is None:
        raise ScanoptError(
            "is for --slower and --larger",
            where="--steps",
            hint="values are compared after no step, one, two and more",
        )
    if check is not None:
        return CommandFails(command=check)
    if raises is not None:
        return CompilingRaises(compiled_by=mode, error=raises)
    if slower is not None or larger is not None:
        return _cost(mode, slower, larger, seed, steps)
    return ValuesDiffer(compiled_by=mode, rtol=rtol, runs=runs, seed=seed)


def _cost(
    mode: str, slower: str | None, larger: str | None, seed: int, steps: int | None
) -> Property:
    from scanopt_cli.benchmarking.benching import STEPS
    from scanopt_cli.culprits.cost_properties import Larger, Slower
    from scanopt_cli.verification.modes import compiling_modes

    option = "--larger" if slower is None else "--slower"
    if len(compiling_modes(mode)) != 1:
        raise ScanoptError(
            f"is of compiled calls, and not of mode {mode}", where=option, hint="name one mode"
        )
    if slower is not None:
        seconds = _quantity(slower, _SECONDS, "s", option, "time", "as in 2ms or 0.5s")
        return Slower(compiled_by=mode, seed=seed, steps=steps or STEPS, seconds=seconds)
    size = _quantity(larger or "", _BYTES, "B", option, "amount of memory", "as in 100MB or 1.5GB")
    return Larger(compiled_by=mode, seed=seed, steps=steps or STEPS, size=int(size))


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_QUANTITY = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-zµ]*)\s*", re.ASCII)


def _quantity(
    text: str, units: Mapping[str, float], unit: str, option: str, what: str, hint: str
) -> float:
    """Return a number with its unit, in the ``unit`` that stands for none."""
    found = _QUANTITY.fullmatch(text)
    if found is None or (found[2] or unit) not in units:
        raise ScanoptError(f"{text!r} is no {what}", where=option, hint=hint)
    value = float(found[1]) * units[found[2] or unit]
    if not 0 < value < inf:
        raise ScanoptError("must be more than 0", where=option, hint=hint)
    return value


def with_arguments(graph: Graph, arguments: Path | None) -> Graph:
    """Return a graph with what a file of arguments holds as its recorded call, if there is one.

    Raises
    ------
    ScanoptError
        If they do not fit the graph's inputs, or the file cannot be read.
    """
    from scanopt_cli.tracing.arguments_given import arguments_of

    if arguments is None:
        return graph
    values = arguments_of(graph, arguments, 0).values
    return graph if values is None else replace(graph, recorded=(tuple(values),))


def limits_of(timeout: float, memory: float) -> Limits:
    """Return the bounds that the options name."""
    from scanopt_cli.culprits.properties import Limits

    return Limits(timeout=timeout, memory=int(memory * 2**30))
