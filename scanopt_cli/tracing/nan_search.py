"""Run a graph and its loops in Python, and look for the first NaN or infinity.

A graph, the body of a loop and that of an OpFromGraph are searched alike. What counts is what they
return: a slot at the end of a step, an output. If that is bad, the first node behind it is named
that makes it of inputs that are not bad. If there is none, what feeds the body held it, and the
search goes on outside. A node that makes a NaN which no slot ever holds is harmless; of a search
for what is masked as well, it is a finding like others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.analysis.expression_text import describe, loop_results
from scanopt_cli.analysis.named_loops import NamedLoop, named_loops
from scanopt_cli.ir.inner_graphs import body_of, inner_graphs, op_name
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import batch_ndim, is_loop, view_of
from scanopt_cli.tracing.nan_result import BadNode, FirstNan, HarmlessNode, ReadValue
from scanopt_cli.tracing.result import OuterStep
from scanopt_cli.tracing.stepping import Step, StepError, StepFunction, StepGraph, steps
from scanopt_cli.tracing.values import as_array, is_finite, number_text, value_text
from scanopt_cli.verification.checking_linker import filled_buffers

_MOST_HARMLESS = 20
_OF_ZERO = ("Log", "Log2", "Log10", "TrueDiv", "IntDiv", "Reciprocal", "Pow", "Mod")
"""The operations that are infinite at zero."""


@dataclass(slots=True)
class _Finding:
    """What was found in a body: `node` if one made it, else the input that held it."""

    first: FirstNan
    held_at: int | None = None


@dataclass(frozen=True, eq=False)
class _Body:
    """A graph to search.

    ``originals`` are its nodes where their names are known from; ``ends`` are the names and places
    of what it returns that counts.
    """

    graph: StepGraph
    originals: Sequence[Apply]
    ends: Sequence[tuple[str, int]]
    names: Mapping[Variable, str]
    function: StepFunction
    node: Apply | None = None
    loop: NamedLoop | None = None
    inside: dict[int, _Body] = field(default_factory=dict)

    @cached_property
    def rank(self) -> dict[Apply, int]:
        return {node: place for place, node in enumerate(self.graph.nodes)}

    @cached_property
    def inputs(self) -> dict[Variable, int]:
        return {variable: place for place, variable in enumerate(self.graph.inputs)}

    def run(self, values: Sequence[Any]) -> Iterator[Step]:
        if self.node is not None and is_loop(self.node):
            yield from steps(view_of(self.node), self.function, values)
        else:
            outputs = self.function(values)
            yield Step(0, values, outputs, self.function.inside)

    def value(self, variable: Variable, step: Step) -> Any:
        """Return what a variable is in a step; ``None`` if it is not known."""
        if isinstance(variable, Constant):
            return variable.data
        if variable in self.inputs:
            return step.inputs[self.inputs[variable]]
        assert variable.index is not None
        return step.inside.get((self.rank[variable.owner], variable.index))


class NanSearch:
    """The search in one graph, on any arguments.

    With ``allow_inf``, infinities are no finding, and NaNs alone are looked for. With ``masked``, a
    finding is also what no slot and no output holds in the end.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        *,
        allow_inf: bool = False,
        masked: bool = False,
        with_c: bool = False,
    ) -> None:
        self._allow_inf, self._masked, self._with_c = allow_inf, masked, with_c
        self._named: dict[Apply, NamedLoop] = {}
        for loop in named_loops(fgraph, each_place=True):
            self._named.setdefault(loop.view.node, loop)
        nodes = fgraph.toposort()
        graph = StepGraph(fgraph.inputs, fgraph.outputs, nodes)
        ends = [
            (f"output {output.name or place}", place) for place, output in enumerate(fgraph.outputs)
        ]
        names = loop_results(titles(fgraph.outputs))
        self._whole = _Body(graph, nodes, ends, names, self._function(graph))
        self._harmless: Counter[tuple[str | None, str, str]] = Counter()
        self._steps = 0

    def find(self, arguments: Sequence[Any]) -> FirstNan:
        """Return what is found first."""
        self._harmless.clear()
        self._steps = 0
        held = tuple(
            ReadValue(name=describe(variable), value=value_text(as_array(value)), is_bad=True)
            for variable, value in zip(self._whole.graph.inputs, arguments, strict=True)
            if self._is_bad(value)
        )
        with filled_buffers():  # memory that nobody wrote is no number
            outputs = self._whole.function(arguments)
            whole = Step(0, arguments, outputs, self._whole.function.inside)
            found = self._in_step(self._whole, whole)
        first = FirstNan() if found is None else found.first
        if found is not None and found.held_at is not None:
            first = replace(first, is_from_input=True)
        reaches = (name for name, place in self._whole.ends if self._is_bad(outputs[place]))
        harmless = [
            HarmlessNode(name=name, value=value, loop=loop, steps=count)
            for (loop, name, value), count in self._harmless.items()
        ]
        return replace(
            first,
            allows_inf=self._allow_inf,
            counts_masked=self._masked,
            held_by=held,
            reaches=tuple(reaches),
            harmless=tuple(harmless[:_MOST_HARMLESS]),
            steps=self._steps,
        )

    def _function(self, graph: StepGraph) -> StepFunction:
        return StepFunction(graph, notes_nodes=True, with_c=self._with_c)

    def _is_bad(self, value: Any) -> bool:
        if value is None:
            return False
        array = as_array(value)
        if array.dtype.kind not in "fc":
            return False
        return bool((np.isnan(array) if self._allow_inf else ~np.isfinite(array)).any())

    def _search(self, body: _Body, values: Sequence[Any]) -> _Finding | None:
        """Return the first finding in the steps of a body."""
        run = body.run(values)
        while True:
            try:
                step = next(run, None)
            except (StepError, ValueError, IndexError):
                return None  # the error itself is told by who runs the graph
            if step is None:
                return None
            self._steps += body.loop is not None
            found = self._in_step(body, step)
            if found is not None:
                return found

    def _in_step(self, body: _Body, step: Step) -> _Finding | None:
        for place, node in enumerate(body.graph.nodes):
            found = self._inside(body, place, node, step)
            if found is None and self._masked and self._begins(body, node, step):
                told, slot = self._told(body, node, step), self._slot(body, node, step)
                found = _Finding(FirstNan(node=told, slot=slot))
            if found is not None:
                return found
        end = next((end for end in body.ends if self._is_bad(step.outputs[end[1]])), None)
        if end is None:
            self._note_harmless(body, step)
            return None
        return self._behind(body, step, body.graph.outputs[end[1]], end[0])

    def _begins(self, body: _Body, node: Apply, step: Step) -> bool:
        """Whether a node makes what is bad of inputs that are not, outside of loops in the body."""
        if is_loop(node) or not self._makes_bad(body, node, step):
            return False
        return not self._reads_bad(body, node, step)

    def _slot(self, body: _Body, node: Apply, step: Step) -> str | None:
        """Return the first slot, or output, that holds at the end of a step what a node makes."""
        for name, place in body.ends:
            behind = ancestors([body.graph.outputs[place]])
            if self._is_bad(step.outputs[place]) and not {*node.outputs}.isdisjoint(behind):
                return name
        return None

    def _inside(self, body: _Body, place: int, node: Apply, step: Step) -> _Finding | None:
        """Return what is found in the body of a node, if it has one that is searched."""
        if not self._is_searched(body, node, step):
            return None
        if place not in body.inside:
            body.inside[place] = self._body_of(node, body.originals[place])
        inner = body.inside[place]
        values = [body.value(variable, step) for variable in node.inputs]
        if any(value is None for value in values):
            return None
        found = self._search(inner, values)
        if found is None:
            return None
        first = found.first
        assert first.node is not None
        if body.loop is not None:
            outer = OuterStep(body.loop.title, step.number)
            at = replace(first.node, outer_steps=(outer, *first.node.outer_steps))
            first = replace(first, node=at)
        if found.held_at is None:
            return _Finding(first)
        outside = self._behind(body, step, node.inputs[found.held_at], first.slot or "")
        if outside.held_at is not None:  # nor is it made here
            return _Finding(first, outside.held_at)
        return outside

    def _is_searched(self, body: _Body, node: Apply, step: Step) -> bool:
        """Whether to search the body of a node: in a step, only if it made what is bad.

        All are searched for what is masked.
        """
        if not inner_graphs(node.op) or body_of(node.op) is None:
            return False
        if not is_loop(node) and batch_ndim(node):
            return False
        made = [body.value(output, step) for output in node.outputs]
        is_unknown = self._masked or all(value is None for value in made)
        if body.loop is None and (is_loop(node) or any(map(self._is_bad, made))):
            return True
        return is_unknown or any(map(self._is_bad, made))

    def _body_of(self, node: Apply, original: Apply) -> _Body:
        body = body_of(node.op)
        assert body is not None
        graph = StepGraph.of(body)
        loop = self._named.get(original)
        called = titles(body.outputs)
        names = {
            graph.nodes[place].outputs[index]: text
            for place, inner in enumerate(body.toposort())
            for index, text in _results(inner, called)
        }
        if loop is None:
            ends = [(f"{op_name(node.op)}.{place}", place) for place in range(len(body.outputs))]
        else:
            known = dict(zip(body.inputs, graph.inputs, strict=True))
            names |= {known[v]: text for v, text in loop.inner_names.items() if v in known}
            places = {variable: place for place, variable in enumerate(body.outputs)}
            ends = [
                (f"{loop.names[slot]} of {loop.title}", places[variable])
                for slot in loop.view.slots
                for variable in slot.inner_outputs
            ]
        originals = body.toposort()
        return _Body(graph, originals, ends, names, self._function(graph), node, loop)

    def _behind(self, body: _Body, step: Step, end: Variable, slot: str) -> _Finding:
        """Return the node that made a value that is bad, or the input of the body that held it."""
        behind = set(ancestors([end]))
        passed: Apply | None = None
        for node in body.graph.nodes:
            if behind.isdisjoint(node.outputs) or not self._makes_bad(body, node, step):
                continue
            if not self._reads_bad(body, node, step):
                return _Finding(FirstNan(node=self._told(body, node, step), slot=slot))
            passed = passed or node
        held = next(
            (v for v in body.graph.inputs if v in behind and self._is_bad(body.value(v, step))),
            None,
        )
        node = passed or end.owner
        told = _nowhere(body, step, end) if node is None else self._told(body, node, step)
        first = FirstNan(node=told, slot=slot)
        return _Finding(first, None if held is None else self._outside(body, held))

    def _reads_bad(self, body: _Body, node: Apply, step: Step) -> bool:
        """Whether a node reads what is bad already, apart from constants."""
        read = (v for v in node.inputs if not isinstance(v, Constant))
        return any(self._is_bad(body.value(v, step)) for v in read)

    def _makes_bad(self, body: _Body, node: Apply, step: Step) -> bool:
        return any(self._is_bad(body.value(output, step)) for output in node.outputs)

    def _outside(self, body: _Body, held: Variable) -> int:
        """Return which input of the body's node feeds an input of the body."""
        place = body.inputs[held]
        if body.node is None:
            return place
        if not is_loop(body.node):
            return place
        view = view_of(body.node)
        inner = view.op.fgraph.inputs[place]
        slot = next(slot for slot in view.slots if inner in slot.inner_inputs)
        return list(body.node.inputs).index(slot.outer_input)

    def _note_harmless(self, body: _Body, step: Step) -> None:
        for node in body.graph.nodes:
            if self._begins(body, node, step):
                told = self._told(body, node, step)
                key = (told.loop, told.name, _kinds(_bad_output(body, node, step, self._is_bad)))
                self._harmless[key] += 1

    def _told(self, body: _Body, node: Apply, step: Step) -> BadNode:
        made = _bad_output(body, node, step, self._is_bad)
        values = [body.value(variable, step) for variable in node.inputs]
        place = _first_bad(made)
        inputs = tuple(
            ReadValue(
                name=describe(variable, body.names),
                value="" if value is None else _read_text(as_array(value), made.shape, place),
                is_bad=self._is_bad(value),
            )
            for variable, value in zip(node.inputs, values, strict=True)
        )
        at = next((v for v in node.outputs if self._is_bad(body.value(v, step))), node.outputs[0])
        loop = body.loop
        return BadNode(
            why=_why(node, values, made),
            name=describe(at, body.names),
            value=_read_text(made, made.shape, place),
            loop=None if loop is None else loop.title,
            place=None if loop is None else loop.place,
            step=None if loop is None else step.number,
            inputs=inputs,
        )


def _results(node: Apply, names: Mapping[Apply, str]) -> Iterator[tuple[int, str]]:
    """Yield the texts of the results of a loop, by their place."""
    if is_loop(node):
        found = loop_results({node: names[node]})
        yield from ((i, found[v]) for i, v in enumerate(node.outputs) if v in found)


def _nowhere(body: _Body, step: Step, end: Variable) -> BadNode:
    """Return what stands for a node where a body returns its own input."""
    loop = body.loop
    value = body.value(end, step)
    return BadNode(
        why="constant" if isinstance(end, Constant) else "passed on",
        name=describe(end, body.names),
        value="" if value is None else value_text(as_array(value)),
        loop=None if loop is None else loop.title,
        place=None if loop is None else loop.place,
        step=None if loop is None else step.number,
    )


def _bad_output(body: _Body, node: Apply, step: Step, is_bad: Any) -> np.ndarray:
    values = [body.value(output, step) for output in node.outputs]
    return as_array(next((value for value in values if is_bad(value)), values[0]))


def _first_bad(made: np.ndarray) -> tuple[int, ...]:
    """Return the place of the first NaN, or else of the first infinity."""
    if made.dtype.kind not in "fc":
        return ()
    nan = np.isnan(made)
    bad = nan if nan.any() else ~np.isfinite(made)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), made.shape))


def _read_text(value: np.ndarray, shape: tuple[int, ...], place: tuple[int, ...]) -> str:
    """Return a value in a few words; of an array of the shape, also the entry at a place."""
    text = value_text(value)
    if value.ndim and value.shape == shape and value.size > 4:
        return f"{text}; {number_text(value[place])} at {list(place)}"
    return text


def _kinds(made: np.ndarray) -> str:
    kinds = [("NaN", np.isnan(made)), ("inf", made == np.inf), ("-inf", made == -np.inf)]
    return ", ".join(name for name, where in kinds if where.any())


def _is_other(variable: Variable) -> bool:
    return not isinstance(variable, Constant)


def _why(node: Apply, values: Sequence[Any], made: np.ndarray) -> str:
    floats = [array for array in map(as_array, values) if array.dtype.kind in "fc"]
    others = [v for v, variable in zip(values, node.inputs, strict=True) if _is_other(variable)]
    passed = "constant" if all(map(is_finite, map(as_array, others))) else "passed on"
    has_nan = any(np.isnan(array).any() for array in floats)
    has_inf = any(np.isinf(array).any() for array in floats)
    if made.dtype.kind in "fc" and np.isnan(made).any():
        return passed if has_nan else "indefinite" if has_inf else "domain"
    if has_inf or has_nan:
        return passed
    name = type(node.op.scalar_op).__name__ if isinstance(node.op, Elemwise) else ""
    has_zero = any((array == 0).any() for array in map(as_array, values))
    return "pole" if name in _OF_ZERO and has_zero else "overflow"
