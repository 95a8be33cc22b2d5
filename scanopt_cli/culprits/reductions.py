"""Ways to make a graph smaller, of which each may or may not keep what is wrong with it.

Each way yields candidates that are not made yet, in a fixed order: those that take most away come
first. Nothing here asks whether a candidate computes the same; most do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.scan.op import Scan
from pytensor.tensor.basic import as_tensor_variable
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.culprits.smaller_inputs import (
    Candidate,
    plainer_values,
    shorter_inputs,
    size_of_inputs,
)
from scanopt_cli.ir.graph import Graph, copy_nodes, from_io, substituted
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.inner_graphs import body_of, walk, with_body
from scanopt_cli.ir.scan_view import ScanView, is_loop, view_of
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.python_source.scan_calls import AFTER_START, UNNAMED, taken_by_call

type Reduction = Callable[[Graph], Iterator[Candidate]]

_FEW_STEPS = (1, 2, 3)
_MOST_SUBSTITUTES = 6
# A call of `scan`, and a Scan that is none, take about so many lines more than another node.
_LINES_OF_A_CALL = 4
_LINES_OF_A_SCAN = 14
# The defaults of the constructor of a Scan.
_USUAL = {"allow_gc": True, "strict": True, "profile": None}
_CLEANING = ("inline-ofg", "remove-unused", "inline-constants", "merge-equal", "clean-slices")


def size(graph: Graph) -> tuple[int, ...]:
    """Return what a reduction makes smaller: nodes, inputs and outputs, values that are kept.

    Steps and lengths of inputs count as well, where they are known; of values, how many there are,
    how large those are that may count something, and how many are not 1.

    Settings of Scans that are not the usual ones count as well.

    It is what a person reads. So nodes that a call of ``pytensor.scan`` makes by itself, such as
    the buffer of a state, do not count; the call counts as several nodes, a Scan that no such call
    makes as many, and one that reads a buffer itself as two.
    """
    fgraph = graph.fgraph
    steps = sum(
        int(node.inputs[0].data) if isinstance(node.inputs[0], Constant) else 1_000
        for node in fgraph.apply_nodes
        if is_loop(node)
    )
    ends = len(fgraph.inputs) + len(fgraph.outputs)
    n_settings = sum(map(len, settings_of_scans(graph)))
    return _n_read(fgraph), ends, steps, len(graph.recorded), n_settings, *size_of_inputs(graph)


def settings_of_scans(graph: Graph) -> list[list[str]]:
    """Return which settings of each Scan are not the usual ones."""
    scans = (node for node in graph.fgraph.toposort() if type(node.op) is Scan)
    return [sorted(_odd_settings(node)) for node in scans]


def _n_read(fgraph: FunctionGraph) -> int:
    """Return how many nodes a person reads, bodies included."""
    nodes = list(walk(fgraph))
    of_calls: set[Apply] = set()
    buffers: dict[Variable, int] = {}
    more = 0
    for node in nodes:
        if type(node.op) is Scan:
            given = taken_by_call(node)
            if given is None:
                more += _LINES_OF_A_SCAN
                continue
            more += _LINES_OF_A_CALL
            behind = ancestors(node.inputs, blockers=given)
            owners = {v.owner for v in behind if v.owner is not None}
            of_calls |= owners - {v.owner for v in given}
            slots = (slot for slot in ScanView.of(node).outputs() if slot.kind in AFTER_START)
            buffers |= {slot.output: slot.n_initial for slot in slots}
    for node in nodes:
        if _is_returned(node, buffers):
            of_calls.add(node)
        elif any(v in buffers for v in node.inputs):
            more += 1
    return len({*nodes} - of_calls) + more


def _is_returned(node: Apply, buffers: Mapping[Variable, int]) -> bool:
    """Whether a node takes what a call returns of a buffer, its rows behind the initial ones."""
    if not isinstance(node.op, Subtensor) or node.inputs[0] not in buffers:
        return False
    (index, *others) = indices_of(node)
    return (
        not others
        and isinstance(index, slice)
        and number(index.start) == buffers[node.inputs[0]]
        and index.stop is index.step is None
    )


def _odd_settings(node: Apply) -> dict[str, Any]:
    """Return the usual values of the settings of a Scan that a script would have to state."""
    # A call sets how memory is freed by itself.
    of_all = {"truncate_gradient": -1, "name": UNNAMED}
    usual = of_all if taken_by_call(node) is not None else {**of_all, **_USUAL}
    return {name: value for name, value in usual.items() if getattr(node.op, name) != value}


def fewer_outputs(graph: Graph) -> Iterator[Candidate]:
    """Keep one half of the outputs, or the other; or all but one."""
    outputs = graph.fgraph.outputs
    n = len(outputs)
    if n > 2:
        for kept in (outputs[: n // 2], outputs[n // 2 :]):
            yield partial(_with_outputs, graph, kept)
    if n > 1:
        for i in range(n):
            yield partial(_with_outputs, graph, [*outputs[:i], *outputs[i + 1 :]])


def earlier_outputs(graph: Graph) -> Iterator[Candidate]:
    """Let an operand of the node that computes an output be the output."""
    outputs = graph.fgraph.outputs
    for i, output in enumerate(outputs):
        for operand in dict.fromkeys(output.owner.inputs) if output.owner is not None else ():
            if operand.owner is not None:
                yield partial(_with_outputs, graph, [*outputs[:i], operand, *outputs[i + 1 :]])


def fewer_recorded(graph: Graph) -> Iterator[Candidate]:
    """Keep no recorded call, or one of them."""
    if graph.recorded:
        yield partial(replace, graph, recorded=())
    if len(graph.recorded) > 1:
        for call in graph.recorded:
            yield partial(replace, graph, recorded=(call,))


def inputs_in_place_of_nodes(graph: Graph) -> Iterator[Candidate]:
    """Let a new input take the place of a variable, and all that computes it go."""
    above: dict[Variable, int] = {}
    for node in graph.fgraph.toposort():
        count = sum(v.owner is not None for v in ancestors(node.outputs[:1]))
        above |= dict.fromkeys(node.outputs, count)
    order = list(above)
    for variable in sorted(order, key=lambda v: -above[v]):
        if variable not in graph.fgraph.outputs and graph.fgraph.clients[variable]:
            yield partial(_replaced, graph, variable, _new_input(variable, graph))


def operands_in_place_of_nodes(graph: Graph) -> Iterator[Candidate]:
    """Let an operand of a node, or a constant, take the place of its result."""
    for node in reversed(graph.fgraph.toposort()):
        for output in node.outputs:
            if not graph.fgraph.clients[output]:
                continue
            for other in _substitutes(output, node):
                yield partial(_replaced, graph, output, other)


def smaller_bodies(graph: Graph) -> Iterator[Candidate]:
    """Do the same in the bodies of loops and OpFromGraphs, whose signature stays."""
    for position, node in enumerate(graph.fgraph.toposort()):
        for make in _edits_of_body(node):
            yield partial(_with_op, graph, position, make)


def fewer_steps(graph: Graph) -> Iterator[Candidate]:
    """Let a loop have a few steps, and what else counts as many have as few; or the loop alone."""
    for position, node in enumerate(graph.fgraph.toposort()):
        if is_loop(node):
            for steps in _FEW_STEPS:
                yield partial(_with_count, graph, node, steps)
                yield partial(_with_steps, graph, position, steps)


def steps_in_place_of_loops(graph: Graph) -> Iterator[Candidate]:
    """Let one step, of new inputs, take the place of a loop."""
    for node in graph.fgraph.toposort():
        if is_loop(node):
            yield partial(_with_one_step, graph, node)


def plainer_settings(graph: Graph) -> Iterator[Candidate]:
    """Let Scans have the usual settings, all of them or one: how memory is freed, names."""
    for position, node in enumerate(graph.fgraph.toposort()):
        if type(node.op) is Scan:
            odd = _odd_settings(node)
            for names in ([*odd], *([name] for name in odd)):
                usual = {name: odd[name] for name in names}
                yield partial(_with_op, graph, position, partial(_with_settings, node.op, usual))


def cleaned(graph: Graph) -> Iterator[Candidate]:
    """Run a pass that takes away what is unused, equal or in an OpFromGraph of its own."""
    for name in _CLEANING:
        yield partial(_cleaned, graph, name)


REDUCTIONS: tuple[Reduction, ...] = (
    fewer_outputs,
    earlier_outputs,
    fewer_recorded,
    steps_in_place_of_loops,
    fewer_steps,
    shorter_inputs,
    cleaned,
    inputs_in_place_of_nodes,
    operands_in_place_of_nodes,
    smaller_bodies,
    plainer_settings,
    plainer_values,
)
"""All ways, those that take most away first."""
OF_ARGUMENTS: tuple[Reduction, ...] = (shorter_inputs, plainer_values)
"""Those that make the arguments smaller for which a graph is broken."""


def _with_outputs(graph: Graph, outputs: Sequence[Variable]) -> Graph:
    """Return a graph of some outputs, with the inputs that they depend on."""
    used = {*graph_inputs(outputs)}
    places = [i for i, variable in enumerate(graph.fgraph.inputs) if variable in used]
    known = {*graph.fgraph.inputs}
    new = [v for v in graph_inputs(outputs) if v not in known and not isinstance(v, Constant)]
    made = from_io([*(graph.fgraph.inputs[i] for i in places), *dict.fromkeys(new)], outputs)
    recorded = () if new else tuple(tuple(call[i] for i in places) for call in graph.recorded)
    return replace(made, recorded=recorded, source=graph.source)


def _replaced(graph: Graph, variable: Variable, other: Variable | None) -> Graph | None:
    """Return a graph in which a variable is replaced; ``None`` if the types do not fit."""
    if other is None:
        return None
    try:
        fitting = variable.type.filter_variable(other, allow_convert=True)
        return _with_outputs(graph, substituted(graph.fgraph.outputs, {variable: fitting}))
    except (TypeError, ValueError, AssertionError):
        return None


def _new_input(variable: Variable, graph: Graph) -> Variable:
    """Return an input of the type of a variable, with a name that none has."""
    taken = {v.name for v in graph.fgraph.inputs}
    name = next(f"v{i}" for i in range(len(taken) + 1) if f"v{i}" not in taken)
    made: Variable = variable.type(name=name)
    return made


def _substitutes(output: Variable, node: Apply, more: Sequence[Variable] = ()) -> list[Variable]:
    """Return what may take the place of a result: what it is computed from, and a constant."""
    kind = output.type
    found = [v for v in (*ancestors(node.inputs), *more) if v.type == kind][:_MOST_SUBSTITUTES]
    if isinstance(kind, TensorType) and None not in kind.shape and kind.dtype != "bool":
        found.append(as_tensor_variable(np.ones(kind.shape, kind.dtype)))
    return list(dict.fromkeys(found))


def _edits_of_body(node: Apply) -> Iterator[Callable[[], Any]]:
    """Yield what makes the Op of a node with a smaller body."""
    body = body_of(node.op)
    if body is None:
        return
    unfrozen = body.unfreeze()
    for position, inner in reversed(list(enumerate(unfrozen.toposort()))):
        for i, output in enumerate(inner.outputs):
            n = len(_substitutes(output, inner, unfrozen.inputs))
            for k in range(n if unfrozen.clients[output] else 0):

                def edited(position: int = position, i: int = i, k: int = k) -> Any:
                    form: FunctionGraph = copy_nodes(unfrozen)
                    twin = form.toposort()[position]
                    old = twin.outputs[i]
                    form.replace(old, _substitutes(old, twin, form.inputs)[k], import_missing=True)
                    return with_body(node.op, form)

                yield edited
        for make in _edits_of_body(inner):

            def nested(position: int = position, make: Callable[[], Any] = make) -> Any:
                form: FunctionGraph = copy_nodes(unfrozen)
                twin = form.toposort()[position]
                new = make().make_node(*twin.inputs)
                form.replace_all(list(zip(twin.outputs, new.outputs, strict=True)))
                return with_body(node.op, form)

            yield nested


def _with_settings(op: Scan, settings: Mapping[str, Any]) -> Scan:
    """Return a Scan with other settings."""
    known = {name: getattr(op, name) for name in ("truncate_gradient", "name", *_USUAL)}
    body = op.fgraph.unfreeze()
    return Scan(body.inputs, body.outputs, op.info, mode=op.mode, **{**known, **settings})


def _with_op(graph: Graph, position: int, make: Callable[[], Any]) -> Graph | None:
    """Return a graph in which the node at a position applies another Op."""
    form = copy_nodes(graph.fgraph)
    node = form.toposort()[position]
    new = make().make_node(*node.inputs)
    form.replace_all(list(zip(node.outputs, new.outputs, strict=True)))
    return _with_outputs(replace(graph, fgraph=form), form.outputs)


def _with_one_step(graph: Graph, node: Apply) -> Graph | None:
    """Return a graph in which the results of one step take the place of a loop's."""
    view = view_of(node)
    view.unfreeze()
    made: dict[Variable, Variable] = {}
    for slot in view.outputs():
        old = slot.outer_output
        if old is None or not graph.fgraph.clients.get(old):
            continue
        (new,) = slot.inner_outputs  # a mit_mot with several is no candidate
        row = new if old.type.ndim == new.type.ndim else new[None]  # type: ignore[index]
        made[old] = old.type.filter_variable(row, allow_convert=True)
        if slot.kind in AFTER_START:  # the rows behind the initial ones are that of the step
            made |= {
                reader.outputs[0]: reader.outputs[0].type.filter_variable(row, allow_convert=True)
                for reader, _ in graph.fgraph.clients[old]
                if _is_returned(reader, {old: slot.n_initial})
            }
    return _with_outputs(graph, substituted(graph.fgraph.outputs, made))


def _with_count(graph: Graph, node: Apply, steps: int) -> Graph | None:
    """Return a graph in which the number of steps of a loop is another one wherever it is read."""
    known = view_of(node).n_steps
    new = as_tensor_variable(np.int64(steps))
    counts = {known: known.type.filter_variable(new, allow_convert=True)}
    if isinstance(known, Constant):
        if int(known.data) <= steps:
            return None
        counts |= {
            variable: new
            for variable in graph.fgraph.variables
            if isinstance(variable, TensorConstant)
            and variable.type.ndim == 0
            and variable.type.dtype == "int64"
            and int(variable.data) == int(known.data)
        }
    return _with_outputs(graph, substituted(graph.fgraph.outputs, counts))


def _with_steps(graph: Graph, position: int, steps: int) -> Graph | None:
    """Return a graph in which a loop has so many steps; ``None`` if it has no more already."""
    form = copy_nodes(graph.fgraph)
    node = form.toposort()[position]
    view = view_of(node)
    known = view.n_steps
    if isinstance(known, Constant) and int(known.data) <= steps:
        return None
    view.n_steps = as_tensor_variable(np.int64(steps))
    form.replace_all(list(view.rebuild().items()), import_missing=True)
    return _with_outputs(replace(graph, fgraph=form), form.outputs)


def _cleaned(graph: Graph, name: str) -> Graph:
    """Return what a pass makes of a graph."""
    form = copy_nodes(graph.fgraph)
    run_pipeline(form, parse(name), strict=True)
    return _with_outputs(replace(graph, fgraph=form), form.outputs)
