"""A broken graph as a script that fails, for a bug report: of PyTensor's alone, or of a pass."""

from __future__ import annotations

import platform
from dataclasses import replace

import numpy as np
import pytensor

from scanopt_cli.culprits.properties import (
    CompilingRaises,
    Limits,
    Property,
    State,
    ValuesDiffer,
)
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.python_source.script import PythonScript
from scanopt_cli.python_source.to_python import MODE, Ending, written
from scanopt_cli.text import printable
from scanopt_cli.version import __version__

_MODES = {
    "default": "",
    "vm": f'{MODE}("vm", "fast_run").excluding("fusion")',
    "cvm": f'{MODE}("cvm", "fast_run")',
    "numba": '"NUMBA"',
    "jax": '"JAX"',
}
_LONGEST = 200


def repro(
    graph: GraphLike, wrong: Property | None = None, limits: Limits | None = None
) -> PythonScript:
    """Return a graph that PyTensor compiles wrongly as a script that fails, without scanopt.

    It compiles the graph by the mode of the property, and without rewrites; it prints the values of
    both on the arguments for which they differ, and raises an error there. If compiling raises an
    error, the script compiles the graph. Which versions it was found with, and what was seen, are
    comments at its top.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    wrong
        The property, as in `bisect`: of values or of an error of compilation.
    limits
        Bounds of the evaluation.

    Raises
    ------
    ScanoptError
        If the graph does not have the property once PyTensor has compiled it, or its arguments or
        it itself cannot be written.
    """
    whole, wrong = as_graph(loaded_graph(graph)), wrong or ValuesDiffer()
    mode = wrong.mode
    if mode is None:
        raise ScanoptError(
            f"a script shows what PyTensor compiles wrongly, not that {wrong.text}",
            where=whole.source,
        )
    found, arguments = wrong.shown(whole, limits or Limits())
    if found.state is not State.BROKEN or found.mode is None:
        raise ScanoptError(f"PyTensor compiles it right: {found.why}", where=whole.source)
    code = _MODES.get(mode, repr(mode))
    plain = Graph(fgraph=whole.fgraph, source=whole.source)
    if isinstance(wrong, CompilingRaises):
        script = written(plain, Ending.COMPILES, code)
    elif arguments is None:
        raise ScanoptError(
            "the arguments on which values differ are neither arrays nor random generators",
            where=whole.source,
        )
    else:
        script = written(replace(plain, recorded=(arguments,)), Ending.COMPARES, code)
    return _headed(script, f"{wrong.text}: {found.why}")


def pass_repro(graph: GraphLike, pipeline: str, why: str) -> PythonScript:
    """Return a graph on which a pass of scanopt's, or of a plug-in, fails, as a script that does.

    It needs scanopt, and runs ``pipeline`` on the graph; ``why`` says what was seen.

    Raises
    ------
    ScanoptError
        If the graph cannot be written.
    """
    whole = as_graph(loaded_graph(graph))
    plain = Graph(fgraph=whole.fgraph, source=whole.source)
    script = written(plain, Ending.OPTIMIZES, pipeline)
    return _headed(script, f"{pipeline} fails: {why}", f"scanopt {__version__}")


def _headed(script: PythonScript, what: str, *more: str) -> PythonScript:
    """Return a script with comments at its top: versions, and what is wrong."""
    python = platform.python_version()
    versions = (*more, f"PyTensor {pytensor.__version__}", f"NumPy {np.__version__}")
    head = [", ".join((*versions, f"Python {python}")), what[:_LONGEST]]
    comments = "".join(f"# {printable(' '.join(line.split()))}\n" for line in head)
    return PythonScript(
        text=comments + script.text, constants=script.constants, source=script.source
    )
