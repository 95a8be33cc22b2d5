"""Activity analysis: which variables and nodes, bodies included, a derivative depends on.

In the terms of automatic differentiation, `varied` gives the *varied* variables, which depend on
an input, and `useful` the *useful* ones, on which an output depends. Both together are *active*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import TensorType

from scanopt_cli.autodiff.connections import pattern
from scanopt_cli.ir.inner_graphs import body_of, core_op
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import is_loop, view_of


@dataclass(frozen=True, slots=True)
class ActiveNode:
    """A node on a path from an input to an output.

    ``path`` holds the titles of the nodes whose bodies it is in, outermost first. ``title`` is its
    own title (see `titles`), or ``None`` if it has no body.
    """

    node: Apply
    path: tuple[str, ...]
    title: str | None


def is_float(variable: Variable) -> bool:
    """Whether ``variable`` is a tensor of real floating-point numbers."""
    kind = variable.type
    return isinstance(kind, TensorType) and str(kind.dtype).startswith("float")


def is_complex(variable: Variable) -> bool:
    """Whether ``variable`` is a tensor of complex numbers."""
    kind = variable.type
    return isinstance(kind, TensorType) and str(kind.dtype).startswith("complex")


def useful(
    outputs: Sequence[Variable], *, smooth: bool = True, with_complex: bool = False
) -> set[Variable]:
    """Return the variables that ``outputs`` depend on along paths that PyTensor differentiates.

    A path ends at an input that an Op declares disconnected (an index, a shape, a trip count). With
    ``smooth`` it also ends at a variable that holds no floats, such as the result of a comparison:
    PyTensor follows such a path, but the derivative along it is zero. It goes through complex
    numbers only ``with_complex``.
    """
    carries = _is_any if not smooth else _is_smooth if with_complex else is_float
    return _needed(list(toposort(outputs)), outputs, carries)


def varied(outputs: Sequence[Variable], starts: Iterable[Variable]) -> set[Variable]:
    """Return the floats in ``starts`` and, up to ``outputs``, all that depends smoothly on them."""
    return _reached(list(toposort(outputs)), starts, is_float)


def active_nodes(inputs: Iterable[Variable], outputs: Sequence[Variable]) -> Iterator[ActiveNode]:
    """Yield every node that PyTensor differentiates between ``inputs`` and ``outputs``.

    The nodes of a body follow the node that has the body. An OpFromGraph with a pullback of its own
    is not entered.
    """
    return _active_nodes(inputs, outputs, titles(outputs), ())


def _active_nodes(
    inputs: Iterable[Variable],
    outputs: Sequence[Variable],
    called: Mapping[Apply, str],
    path: tuple[str, ...],
) -> Iterator[ActiveNode]:
    nodes = list(toposort(outputs))
    backward = _needed(nodes, outputs, _is_any)
    forward = _reached(nodes, inputs, _is_any)
    for node in nodes:
        if not any(output in forward and output in backward for output in node.outputs):
            continue
        yield ActiveNode(node, path, called.get(node))
        body, ends = body_of(node.op), _body_ends(node, forward, backward)
        if body is not None and ends is not None:
            yield from _active_nodes(*ends, titles(body.outputs), (*path, called[node]))


def _is_any(_: Variable) -> bool:
    return True


def _is_smooth(variable: Variable) -> bool:
    return is_float(variable) or is_complex(variable)


def _reached(
    nodes: Sequence[Apply], starts: Iterable[Variable], carries: Callable[[Variable], bool]
) -> set[Variable]:
    found = {start for start in starts if carries(start)}
    for node in nodes:
        if found.isdisjoint(node.inputs):
            continue
        rows = pattern(node)
        for position, output in enumerate(node.outputs):
            if carries(output) and any(
                row[position] and v in found for v, row in zip(node.inputs, rows, strict=True)
            ):
                found.add(output)
    return found


def _needed(
    nodes: Sequence[Apply], outputs: Sequence[Variable], carries: Callable[[Variable], bool]
) -> set[Variable]:
    found = {output for output in outputs if carries(output)}
    for node in reversed(nodes):
        if found.isdisjoint(node.outputs):
            continue
        for variable, row in zip(node.inputs, pattern(node), strict=True):
            if carries(variable) and any(
                connected and output in found
                for connected, output in zip(row, node.outputs, strict=True)
            ):
                found.add(variable)
    return found


def _body_ends(
    node: Apply, forward: set[Variable], backward: set[Variable]
) -> tuple[list[Variable], list[Variable]] | None:
    """The inputs and outputs between which the body of ``node`` is differentiated, if it is."""
    core = core_op(node.op)
    if is_loop(node):
        view = view_of(node)
        starts = [
            variable
            for slot in view.slots
            if not forward.isdisjoint((slot.outer_input, *slot.outer_outputs))
            for variable in slot.inner_inputs
        ]
        ends = [
            variable
            for slot in view.outputs()
            if not backward.isdisjoint((slot.outer_input, *slot.outer_outputs))
            for variable in slot.inner_outputs
        ]
        return starts, ends
    if isinstance(core, OpFromGraph) and core.pullback_overrides is None:
        inner = core.fgraph
        starts = [i for i, outer in zip(inner.inputs, node.inputs, strict=True) if outer in forward]
        ends = [i for i, o in zip(inner.outputs, node.outputs, strict=True) if o in backward]
        return starts, ends
    return None
