"""TracedLoops as calls of `scan`, `map`, `filter`, `reduce`, `while_loop`, or of `for_loop`.

All but the last index each sequence by the step, from its first row or from its last, count the
steps by the rows, or ask a condition of the values after a step. Here that is recognised; it need
not be right, since the call is evaluated and compared with the node. A `for_loop` is any other loop
whose states and constants have the types of what it begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, toposort
from pytensor.tensor.basic import Nonzero, ScalarFromTensor
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.loop.body import Body
from scanopt_cli.loop.operators import TracedLoop
from scanopt_cli.python_source.code import (
    Candidate,
    Code,
    Definition,
    Operand,
    Part,
    Reference,
    call,
    code,
    paired,
    quoted,
    sequence,
    text,
)
from scanopt_cli.python_source.loop_names import of_row

LOOP = "scanopt_cli", "loop"
"""Where the functions are imported from, and by which name."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function is called with, and returns, that `scanopt_cli.loop` calls.

    Attributes
    ----------
    groups
        Its parameters: what each is called if it holds several values, or none, and how many. A
        single value is passed as it is, none as None, several as a tuple.
    returned
        How many values each part has that is returned, one part or several.
    """

    groups: tuple[tuple[str, int], ...]
    returned: tuple[int, ...]

    def result(self, outputs: Sequence[Part]) -> Code:
        """Return what a function returns, given all values of it."""
        rest = list(outputs)
        parts = []
        for size in self.returned:
            parts.append(nested(rest[:size]))
            del rest[:size]
        single = len(self.returned) == 1 and len(outputs) > 1
        return sequence(outputs if single else parts)


type Define = Callable[[FrozenFunctionGraph, Sequence[str | None], Signature, str], Definition]
"""Defines a function that computes a graph, whose inputs have names; the last says what it is."""


def nested(parts: Sequence[Part]) -> Code:
    """Return values as they are passed: none as None, one as it is, several as a tuple."""
    if not parts:
        return text("None")
    return code("{}", parts[0]) if len(parts) == 1 else paired(parts)


def loop_calls(
    node: Apply, define: Define, names: Mapping[Variable, str | None]
) -> Iterator[Candidate]:
    """Yield calls that may make ``node``, which applies a TracedLoop.

    ``names`` says what the states and constants of its body are called in a step, by the operands
    that they stand for.
    """
    body = node.op.body
    if node.op.is_while:
        yield from _while_loops(node, body, define, names)
    else:
        yield from _over_rows(node, body, define, names)
    yield _for_loop(node, define, names)


def filter_calls(node: Apply, calls: Callable[[Apply], Iterator[Candidate]]) -> Iterator[Candidate]:
    """Yield calls of `filter` that may make ``node``: rows for which a map is true.

    ``calls`` yields those that may make the map.
    """
    if not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return
    places = node.inputs[1].owner
    chosen = places.inputs[0].owner if places is not None else None
    if chosen is None or not isinstance(places.op, Nonzero) or type(chosen.op) is not TracedLoop:
        return
    by_map, by_filter = _reference("map"), _reference("filter")
    for made in calls(chosen):
        if by_map in made.code.parts:
            parts = tuple(by_filter if part == by_map else part for part in made.code.parts)
            yield Candidate(Code(parts), (node.outputs[0],))


def _for_loop(node: Apply, define: Define, names: Mapping[Variable, str | None]) -> Candidate:
    op: TracedLoop = node.op
    n_steps, initial, outer = op.split(node.inputs)
    groups = (("index", 1), ("carry", len(initial)), *_constants(len(outer)))
    ending = (1,) if op.is_while else ()
    signature = Signature(groups, (len(initial), op.n_traced, *ending))
    called = ["index", *(names.get(v) for v in (*initial, *outer))]
    step = define(op.fgraph, called, signature, "step")
    arguments: list[Part] = [Operand(n_steps), step, nested(_operands(initial))]
    if outer:
        arguments.append(nested(_operands(outer)))
    lasts, _, traced, _ = op.split_outputs(node.outputs)
    made = _called("for_loop", arguments, _named(op))
    return Candidate(made, (*lasts, *traced), form=(_shape(lasts), _shape(traced)))


def _over_rows(
    node: Apply, body: Body, define: Define, names: Mapping[Variable, str | None]
) -> Iterator[Candidate]:
    """Yield calls of `map`, `reduce` and `scan`."""
    op: TracedLoop = node.op
    n_steps, initial, outer = op.split(node.inputs)
    rows = _Rows.of(body)
    if rows is None:
        return
    values = dict(zip(body.constants, outer, strict=True))
    read = {*explicit_graph_inputs(rows.outputs)}
    constants = [v for v in body.constants if v in read]
    inputs = [*body.states, *rows.rows, *constants]
    if not read <= {*inputs}:
        return
    sequences = [values[v] for v in rows.sources]
    called = [names.get(v) for v in initial]
    called += [of_row(names.get(v)) for v in sequences]
    called += [names.get(values[v]) for v in constants]
    step = _Step(
        graph=FrozenFunctionGraph.from_io(inputs, rows.outputs),
        names=called,
        sizes=(len(initial), len(sequences), len(constants)),
        n_traced=len(body.traced),
    )
    lasts, _, traced, _ = op.split_outputs(node.outputs)
    begins, given = nested(_operands(initial)), nested(_operands(sequences))
    ending: dict[str, Part] = {}
    if rows.backwards:
        ending["go_backwards"] = text("True")
    ending |= _named(op)
    extra = [nested(_operands([values[v] for v in constants]))] if constants else []
    counts = list(_step_counts(n_steps)) if sequences else [n_steps]
    if sequences and not initial and not rows.backwards:
        passed: list[Part] = [step.of_map(define), given, *extra]
        made = _called("map", passed, ending)
        yield Candidate(made, tuple(traced), form=_shape(traced))
    if sequences and not traced:
        passed = [step.of_reduce(define), given, begins, *extra]
        made = _called("reduce", passed, ending)
        yield Candidate(made, tuple(lasts), form=_shape(lasts))
    results, form = (*lasts, *traced), (_shape(lasts), _shape(traced))
    arguments: list[Part] = [step.of_scan(define), begins]
    if sequences or extra:
        arguments += [given, *extra]
    if sequences:
        yield Candidate(_called("scan", arguments, ending), results, form=form)
    for count in counts:
        made = _called("scan", arguments, {"max_steps": Operand(count), **ending})
        yield Candidate(made, results, form=form)


def _step_counts(n_steps: Variable) -> Iterator[Variable]:
    """Yield what ``max_steps`` may be where rows are counted as well; the smaller counts."""
    node = n_steps.owner
    if node is not None and isinstance(node.op, Elemwise) and len(node.inputs) == 2:
        yield from node.inputs


def _called(function: str, arguments: Sequence[Part], options: Mapping[str, Part]) -> Code:
    return call(_reference(function), arguments, options)


def _reference(function: str) -> Reference:
    module, name = LOOP
    return Reference(module, f"{name}.{function}")


def _constants(n: int) -> tuple[tuple[str, int], ...]:
    """Return the parameter that holds the constants; there is none if there are none."""
    return (("given", n),) if n else ()


def _named(op: TracedLoop) -> dict[str, Part]:
    return {"name": quoted(str(op.name))} if op.name else {}


def _operands(variables: Sequence[Variable]) -> list[Part]:
    return [Operand(v) for v in variables]


def _shape(variables: Sequence[Variable]) -> Any:
    """Return variables as a function returns them, nested as they are passed."""
    if not variables:
        return None
    return variables[0] if len(variables) == 1 else tuple(variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The graph of a step over states, rows and constants, as the functions are given it."""

    graph: FrozenFunctionGraph
    names: Sequence[str | None]
    sizes: tuple[int, int, int]
    n_traced: int

    def of_scan(self, define: Define) -> Definition:
        n_states, n_rows, _ = self.sizes
        groups = (("carry", n_states), ("rows", n_rows), *_constants(self.sizes[2]))
        return self._defined(define, Signature(groups, (n_states, self.n_traced)))

    def of_map(self, define: Define) -> Definition:
        groups = (("rows", self.sizes[1]), *_constants(self.sizes[2]))
        return self._defined(define, Signature(groups, (self.n_traced,)))

    def of_reduce(self, define: Define) -> Definition:
        n_states, n_rows, _ = self.sizes
        groups = (("carry", n_states), ("rows", n_rows), *_constants(self.sizes[2]))
        return self._defined(define, Signature(groups, (n_states,)))

    def _defined(self, define: Define, signature: Signature) -> Definition:
        return define(self.graph, self.names, signature, "step")


@dataclass(frozen=True, slots=True)
class _Rows:
    """A body that reads rows of its sequences in place of the index."""

    sources: list[Variable]
    rows: list[Variable]
    outputs: list[Variable]
    backwards: bool

    @classmethod
    def of(cls, body: Body) -> _Rows | None:
        """Return a body over rows; None if it reads the index in another way."""
        nodes = list(toposort(body.outputs))
        below = {body.index}
        found: dict[Variable, list[Variable]] = {}
        is_forward = set()
        for node in nodes:
            if not any(v in below for v in node.inputs):
                continue
            source = node.inputs[0]
            if not isinstance(node.op, Subtensor) or source not in body.constants:
                below |= {*node.outputs}
                continue
            (index, *others) = indices_of(node)
            if others or isinstance(index, slice):
                return None
            found.setdefault(source, []).append(node.outputs[0])
            is_forward.add(_as_tensor(index) is body.index)
        if len(is_forward) > 1:
            return None
        sources = [v for v in body.constants if v in found]
        rows = [found[v][0].type() for v in sources]
        made = {old: row for v, row in zip(sources, rows, strict=True) for old in found[v]}
        outputs = clone_replace(list(body.outputs), made, copy_inputs_over=True)
        return cls(sources, rows, list(outputs), is_forward == {False})


def _as_tensor(index: Any) -> Any:
    node = index.owner
    if node is not None and isinstance(node.op, ScalarFromTensor):
        return node.inputs[0]
    return index


def _while_loops(
    node: Apply, body: Body, define: Define, names: Mapping[Variable, str | None]
) -> Iterator[Candidate]:
    """Yield a call of ``while_loop``: its condition is one of the values after the step."""
    op: TracedLoop = node.op
    n_steps, initial, outer = op.split(node.inputs)
    if op.n_traced or n_steps.owner is None or body.condition is None:
        return
    after = {
        new: old
        for new, old in zip(body.next_states, body.states, strict=True)
        if new not in body.inputs
    }
    condition = clone_replace([body.condition], after, copy_inputs_over=True)
    values = dict(zip(body.constants, outer, strict=True))
    read = {*ancestors([*condition, *body.next_states])}
    constants = [v for v in body.constants if v in read]
    inputs = [*body.states, *constants]
    if body.index in read:
        return
    groups = (("carry", len(initial)), *_constants(len(constants)))
    called = [names.get(v) for v in (*initial, *(values[v] for v in constants))]
    asks, steps = (
        define(FrozenFunctionGraph.from_io(inputs, outputs), called, Signature(groups, (n,)), what)
        for outputs, n, what in (
            (condition, 1, "goes_on"),
            (list(body.next_states), len(initial), "step"),
        )
    )
    lasts = op.split_outputs(node.outputs)[0]
    arguments: list[Part] = [asks, steps, nested(_operands(initial))]
    if constants:
        arguments.append(nested(_operands([values[v] for v in constants])))
    limits: list[dict[str, Part]] = [{}]
    if len(n_steps.owner.inputs) == 3:
        limits.append({"max_steps": Operand(n_steps.owner.inputs[1])})
    for limit in limits:
        made = _called("while_loop", arguments, {**limit, **_named(op)})
        yield Candidate(made, tuple(lasts), form=_shape(lasts))
