"""The loops of two graphs run side by side, up to the first value that differs.

Loops, their slots, and the nodes of their bodies are matched as `diff` matches them. What tells
that loops differ is what they return, the values of matched slots. Of the nodes behind a value that
differs, the first one is named whose own value does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from scanopt_cli.analysis.expression_text import describe, loop_results
from scanopt_cli.diff.body_graphs import body_graph, inner_pairs
from scanopt_cli.diff.loop_fates import heirs
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph, two_sides
from scanopt_cli.diff.matching.match import match
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.diff.matching.slot_pairing import pair_slots
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.tracing.reaching import Outside
from scanopt_cli.tracing.result import FirstDifference, LoopPair, OuterStep, PairOfValues
from scanopt_cli.tracing.stepping import Step, StepError, StepFunction, StepGraph, steps
from scanopt_cli.tracing.values import as_array, value_text
from scanopt_cli.verification.checking_linker import filled_buffers
from scanopt_cli.verification.comparison import Sample, compare
from scanopt_cli.verification.result import Difference
from scanopt_cli.verification.worker import error_text

_SAMPLE = Sample(0, "", ())
# Kinds of slots that hold the same at each step, in loops of the two designs.
_ONE_STATE = frozenset({SlotKind.SIT_SOT, SlotKind.UNTRACED, SlotKind.STATE})
_ONE_VALUE = frozenset({SlotKind.NIT_SOT, SlotKind.TRACED})


class LoopsOfTwo:
    """The matched loops of two graphs, whose inputs correspond by position."""

    def __init__(self, a: FunctionGraph, b: FunctionGraph, *, with_c: bool = False) -> None:
        same = [(place, place) for place in range(len(a.inputs))]
        sides = two_sides(a, b, same)
        ends = [(place, place) for place in range(len(a.outputs))]
        matching = match(*sides, same, ends)
        pairs = list(_loop_pairs(matching))
        self._loops = [_TwoLoops(matching, *pair, with_c=with_c) for pair in pairs]
        paired = {node for one, other, _ in pairs for node in (one, other)}
        self._unmatched = tuple(
            f"{side.titles[node]} of {graph}"
            for side, graph in zip(sides, "AB", strict=True)
            for node in side.titles
            if is_loop(node) and node not in paired
        )
        self._around = [
            Outside(side.inputs, nodes, with_c=with_c) if pairs else None
            for side, nodes in (
                (sides[0], [node for node, _, _ in pairs]),
                (sides[1], [other for _, other, _ in pairs]),
            )
        ]

    def compare(self, values: tuple[Any, ...]) -> FirstDifference:
        """Run the loops on the same arguments."""
        found = FirstDifference(unmatched=self._unmatched)
        read = [{} if one is None else one.values(deepcopy(values)) for one in self._around]
        for loops in self._loops:
            known = found.loops
            with filled_buffers():  # memory that nobody wrote is no difference
                found = loops.compare(read[0][loops.a.node], read[1][loops.b.node])
            found = replace(found, loops=(*known, *found.loops), unmatched=self._unmatched)
            if found.differs:
                break
        return found


def _loop_pairs(matching: Matching) -> Iterator[tuple[Apply, Apply, Pairs]]:
    """Yield the loops before with those that compute the same after, and the pairs of slots."""
    replaced = heirs(matching)
    taken: set[Apply] = set()
    for node in matching.before.nodes:
        if not is_loop(node):
            continue
        pair, heir = matching.pairs.get(node), replaced.get(node)
        if pair is not None and pair.slots is not None:
            yield node, pair.other, pair.slots
        elif pair is None and heir is not None and heir not in taken:
            taken.add(heir)
            yield node, heir, pair_slots(matching, node, heir)


@dataclass(frozen=True)
class _Side:
    """One of two loops: its graph, its node, and its body."""

    graph: IndexedGraph
    node: Apply
    body: IndexedGraph
    function: StepFunction

    @cached_property
    def names(self) -> dict[Variable, str]:
        return loop_results(self.body.titles)

    @cached_property
    def places(self) -> dict[Variable, int]:
        return {variable: place for place, variable in enumerate(self.body.inputs)}

    def text(self, variable: Variable) -> str:
        return describe(variable, self.names)

    def value(self, variable: Variable, step: Step) -> Any:
        """Return what a variable of the body is in a step; ``None`` if it was not computed."""
        if isinstance(variable, Constant):
            return variable.data
        if variable in self.places:
            return step.inputs[self.places[variable]]
        assert variable.index is not None
        return step.inside.get((self.body.rank[variable.owner], variable.index))

    def steps(self, values: Sequence[Any]) -> Iterator[Step]:
        return steps(self.graph.view(self.node), self.function, values)


class _TwoLoops:
    """Two matched loops."""

    def __init__(
        self, matching: Matching, node: Apply, other: Apply, slots: Pairs, *, with_c: bool
    ) -> None:
        before, after = matching.graphs
        views = before.view(node), after.view(other)
        listed = views[0].slots, views[1].slots
        self._slots = [(x, y) for x, y in slots if _is_comparable(listed[0][x], listed[1][y])]
        self._with_c = with_c
        self._inputs, self._outputs = inner_pairs(*views, self._slots)
        bodies = body_graph(before, node), body_graph(after, other)
        sides = two_sides(*bodies, self._inputs, (before, after))
        self._matching = match(*sides, self._inputs, self._outputs)
        functions = [
            StepFunction(
                StepGraph(side.inputs, side.outputs, side.nodes), notes_nodes=True, with_c=with_c
            )
            for side in sides
        ]
        self.a = _Side(before, node, sides[0], functions[0])
        self.b = _Side(after, other, sides[1], functions[1])
        self._slot_of_output = {
            place: before.slot_names(node)[slot]
            for slot in views[0].slots
            for variable in slot.inner_outputs
            for place in [list(views[0].op.fgraph.outputs).index(variable)]
        }

    def compare(self, a: Sequence[Any], b: Sequence[Any]) -> FirstDifference:
        """Run both loops, which read ``a`` and ``b``."""
        runs = self.a.steps(a), self.b.steps(b)
        for number in count():
            done = [_next(run) for run in runs]
            if any(isinstance(step, Exception) for step in done):
                if all(isinstance(step, Exception) for step in done):
                    return self._found(number)
                texts = [error_text(s) if isinstance(s, Exception) else "computes" for s in done]
                return self._found(number, kind="error", at=_pair(None, None, *texts))
            if None in done:
                longer = None if done == [None, None] else "B" if done[0] is None else "A"
                return self._found(number, longer=longer)
            found = self._in_step(*done)
            if found is not None:
                return found
        raise AssertionError("unreachable")

    def _found(self, n_steps: int, longer: str | None = None, **what: Any) -> FirstDifference:
        a, b = self.a, self.b
        place = a.graph.written.get(a.node) or b.graph.written.get(b.node)
        names = a.graph.titles[a.node], b.graph.titles[b.node]
        step = n_steps if what else None
        ran = n_steps + (what.get("kind") in ("input", "node"))
        loop = LoopPair(name_a=names[0], name_b=names[1], place=place, steps=ran, longer=longer)
        return FirstDifference(loops=(loop,), step=step, **what)

    def _in_step(self, a: Any, b: Any) -> FirstDifference | None:
        """Return what differs in a step, if anything does."""
        first, second = self.a, self.b
        for place, other in self._inputs:
            variables = first.body.inputs[place], second.body.inputs[other]
            by = _difference(a.inputs[place], b.inputs[other], variables[0])
            if by is not None:
                at = self._pair_of(*variables, a, b)
                return self._found(a.number, kind="input", at=at, by=_by_text(by))
        for place, other in self._outputs:
            variables = first.body.outputs[place], second.body.outputs[other]
            by = _difference(a.outputs[place], b.outputs[other], variables[0])
            if by is not None:
                slot = self._slot_of_output.get(place, "the condition")
                return self._behind(variables, a, b, slot, by)
        return None

    def _behind(
        self, ends: tuple[Variable, Variable], a: Step, b: Step, slot: str, by: Difference
    ) -> FirstDifference:
        """Return the first node behind two values that differ whose own value differs."""
        behind = [set(ancestors([end])) for end in ends]
        pair: NodePair | None = None
        at = ends
        for node in self.b.body.nodes:
            candidate = self._matching.pairs.get(node)
            if candidate is None or pair is not None:
                continue
            for variables in candidate.outputs_made():
                if any(v not in known for v, known in zip(variables, behind, strict=True)):
                    continue
                values = self.a.value(variables[0], a), self.b.value(variables[1], b)
                if any(value is None for value in values):
                    continue
                found = _difference(*values, variables[0])
                if found is not None:
                    pair, at, by = candidate, variables, found
                    break
        inputs = tuple(self._inputs_of(at, pair, a, b))
        inside = self._inside(pair, a, b, inputs)
        found_here = self._found(
            a.number,
            kind="node",
            slot=slot,
            at=self._pair_of(*at, a, b, differs=True),
            by=_by_text(by),
            inputs=inputs,
        )
        if inside is None:
            return found_here
        outer = OuterStep(self.a.graph.titles[self.a.node], a.number)
        return replace(
            inside,
            loops=(*found_here.loops, *inside.loops),
            outer_steps=(outer, *inside.outer_steps),
        )

    def _inside(
        self, pair: NodePair | None, a: Step, b: Step, inputs: Sequence[PairOfValues]
    ) -> FirstDifference | None:
        """Return the difference inside of two loops in the bodies that are fed the same."""
        if pair is None or pair.slots is None or any(read.differs for read in inputs):
            return None
        loops = _TwoLoops(self._matching, pair.node, pair.other, pair.slots, with_c=self._with_c)
        values = [
            [side.value(variable, step) for variable in node.inputs]
            for side, node, step in ((self.a, pair.node, a), (self.b, pair.other, b))
        ]
        found = loops.compare(*values)
        return found if found.differs else None

    def _inputs_of(
        self, at: tuple[Variable, Variable], pair: NodePair | None, a: Step, b: Step
    ) -> Iterator[PairOfValues]:
        """Yield what two nodes read; inputs that are not paired stand alone."""
        read = [[] if v.owner is None else list(v.owner.inputs) for v in at]
        pairs = [] if pair is None else list(pair.inputs)
        for place, other in pairs:
            yield self._pair_of(read[0][place], read[1][other], a, b)
        for place, variable in enumerate(read[0]):
            if place not in {x for x, _ in pairs}:
                yield self._pair_of(variable, None, a, b)
        for place, variable in enumerate(read[1]):
            if place not in {y for _, y in pairs}:
                yield self._pair_of(None, variable, a, b)

    def _pair_of(
        self,
        variable: Variable | None,
        other: Variable | None,
        a: Step,
        b: Step,
        *,
        differs: bool | None = None,
    ) -> PairOfValues:
        names = [
            None if each is None else side.text(each)
            for side, each in ((self.a, variable), (self.b, other))
        ]
        value_a = None if variable is None else self.a.value(variable, a)
        value_b = None if other is None else self.b.value(other, b)
        texts = [
            None if value is None else value_text(as_array(value)) for value in (value_a, value_b)
        ]
        if differs is None:
            are_known = value_a is not None and value_b is not None
            differs = are_known and _difference(value_a, value_b, variable) is not None
        return PairOfValues(
            name_a=names[0], a=texts[0], name_b=names[1], b=texts[1], differs=differs
        )


def _is_comparable(slot: Slot, other: Slot) -> bool:
    """Whether two slots hold the same kind of value at each step."""
    kinds = {slot.kind, other.kind}
    return len(kinds) == 1 or kinds <= _ONE_STATE or kinds <= _ONE_VALUE


def _next(run: Iterator[Step]) -> Step | Exception | None:
    try:
        return next(run, None)
    except StepError as error:
        return error.error
    except (ValueError, IndexError) as error:
        return error


def _difference(a: Any, b: Any, variable: Any) -> Difference | None:
    """Return how two values differ, by the tolerance of `verify`."""
    found = compare([a], [b], _SAMPLE, [variable], [None]).differences
    return found[0] if found else None


def _by_text(found: Difference) -> str:
    entry = f" at {list(found.where)}" if found.where else ""
    if found.abs_error is None:
        return f"{found.kind} {found.a} against {found.b}{entry}"
    many = f" in {found.elements} entries, most" if (found.elements or 0) > 1 else ""
    return f"off by {found.abs_error:.3g}{many}{entry}"


def _pair(name_a: str | None, name_b: str | None, a: str, b: str) -> PairOfValues:
    return PairOfValues(name_a=name_a, name_b=name_b, a=a, b=b, differs=True)
