"""Find the inputs and the output of a graph selected by name, by position or as variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.traversal import graph_inputs

from scanopt_cli.autodiff.activity import is_float, useful
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, GraphObject
from scanopt_cli.text import few

_POSITION = re.compile(r"#(\d+)")
# How many names an error lists.
_LISTED = 12


def output_position(graph: Graph, output: int | str) -> int:
    """Return the position of the output that ``output`` selects.

    Raises
    ------
    GradientError
        If there is no such output, if its name is not unique, or if it holds no floats.
    """
    position = position_of(output, output_names(graph), "output", graph.source)
    target = graph.outputs[position]
    if not is_float(target):
        raise GradientError(
            f"output {output_names(graph)[position]} is {_kind(target)}: "
            "only floating-point outputs have a derivative",
            where=graph.source,
        )
    return position


def input_positions(
    graph: Graph,
    target: Variable,
    wrt: Sequence[str | int | Variable] | None,
    given: GraphObject,
) -> list[int]:
    """Return the positions of the inputs that ``wrt`` selects, each once, in its order.

    ``wrt`` may hold variables of ``given``, from which ``graph`` was made. ``None`` selects every
    floating-point input that ``target`` depends on.

    Raises
    ------
    GradientError
        If ``wrt`` selects no input, or one that does not exist, whose name is not unique, that
        holds no floats, or by which ``target`` has no derivative.
    """
    inputs = graph.fgraph.inputs
    names, smooth = input_names(inputs), useful([target], with_complex=True)
    if wrt is None:
        found = [i for i, v in enumerate(inputs) if v in smooth and is_float(v)]
        if not found:
            raise GradientError(
                "the output depends on no floating-point input in a differentiable way",
                where=graph.source,
            )
        return found
    selectors = [wrt] if isinstance(wrt, str) else wrt
    positions = [_input_position(selector, names, graph, given) for selector in selectors]
    if not positions:
        raise GradientError("no input to differentiate by", where=graph.source)
    for position in positions:
        _check_input(graph, target, position, smooth)
    return list(dict.fromkeys(positions))


def input_names(inputs: Sequence[Variable]) -> list[str]:
    """Return a name for each input: its own, else its position, such as ``#3``."""
    return [str(variable.name or f"#{i}") for i, variable in enumerate(inputs)]


def output_names(graph: Graph) -> list[str]:
    """Return a name for each output: from the file, of the variable, else ``out`` or ``out3``."""
    known = (*graph.output_names, *[None] * len(graph.outputs))
    alone = len(graph.outputs) == 1
    return [
        str(known[i] or variable.name or ("out" if alone else f"out{i}"))
        for i, variable in enumerate(graph.outputs)
    ]


def position_of(selector: str | int, names: Sequence[str], kind: str, where: str | None) -> int:
    """Return the position of the one ``kind`` (such as ``input``) that ``selector`` selects.

    A selector is a name, a position, or a position as ``"#3"``.

    Raises
    ------
    GradientError
        If there is none, or if several have that name.
    """
    if isinstance(selector, int):
        return _in_range(selector, names, kind, where)
    matches = [position for position, name in enumerate(names) if name == selector]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(f"#{position}" for position in matches)
        raise GradientError(
            f"{len(matches)} {kind}s are called {selector}",
            where=where,
            hint=f"choose one by its position: {listed}",
        )
    by_position = _POSITION.fullmatch(selector)
    if by_position:
        return _in_range(int(by_position[1]), names, kind, where)
    nearest = get_close_matches(selector, names, n=1)
    suggestion = f"did you mean {nearest[0]}? " if nearest else ""
    raise GradientError(
        f"there is no {kind} called {selector}",
        where=where,
        hint=f"{suggestion}{kind}s: {_listed(names)}",
    )


def _in_range(position: int, names: Sequence[str], kind: str, where: str | None) -> int:
    if 0 <= position < len(names):
        return position
    raise GradientError(
        f"there is no {kind} #{position}", where=where, hint=f"{kind}s: {_listed(names)}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = [name if name == f"#{i}" else f"{name} (#{i})" for i, name in enumerate(names)]
    return few(shown, _LISTED) or "none"


def _input_position(
    selector: str | int | Variable, names: Sequence[str], graph: Graph, given: GraphObject
) -> int:
    if not isinstance(selector, Variable):
        return position_of(selector, names, "input", graph.source)
    inputs = _inputs_of(given)
    if selector in inputs:
        return inputs.index(selector)
    raise GradientError(
        f"{selector} is not an input of the graph",
        where=graph.source,
        hint=f"inputs: {_listed(names)}",
    )


def _inputs_of(given: GraphObject) -> list[Variable]:
    """The variables that became the inputs of a `Graph` made from ``given``, in order."""
    if isinstance(given, Graph):
        return list(given.fgraph.inputs)
    if isinstance(given, FrozenFunctionGraph):
        return list(given.inputs)
    ends = given if isinstance(given, tuple) else (given.inputs, given.outputs)
    inputs, outputs = ([*part] if isinstance(part, Sequence) else [part] for part in ends)
    kept = [variable for variable in inputs if not isinstance(variable, Constant)]
    roots = graph_inputs(outputs, blockers=inputs)
    return kept + [v for v in roots if isinstance(v, SharedVariable) and v not in kept]


def _check_input(graph: Graph, target: Variable, position: int, smooth: set[Variable]) -> None:
    variable, name = graph.fgraph.inputs[position], input_names(graph.fgraph.inputs)[position]
    if not is_float(variable):
        raise GradientError(
            f"{name} is {_kind(variable)}: only floating-point inputs have a derivative",
            where=graph.source,
        )
    if variable in smooth:
        return
    if variable not in set(graph_inputs([target])):
        raise GradientError(f"the output does not depend on {name}", where=graph.source)
    raise GradientError(
        f"the output depends on {name} only through what has no derivative: shapes, step counts, "
        "indices, comparisons or rounding to integers",
        where=graph.source,
    )


def _kind(variable: Variable) -> str:
    return str(getattr(variable.type, "dtype", None) or variable.type)
