"""Which inputs and outputs an OpFromGraph needs, in all places where it is applied.

What is read is found as liveness is: at first, nothing is. A graph is walked from its outputs to
its inputs; an output that is met on the way is read, and through a node that applies an OpFromGraph
the walk goes on to those inputs alone of which outputs that are read are computed. Equal
OpFromGraphs share what is read of them, so the walks are repeated until no more is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.random.type import RandomType

from scanopt_cli.analysis.applied_graphs import (
    AppliedGraph,
    GraphKey,
    applied_graphs,
    graph_key,
    why_it_stays,
)
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.ir.inner_graphs import op_name
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.remarks import Reason, Why, because

_NONE: Mapping[int, int] = MappingProxyType({})


class Ends:
    """The inputs and outputs of one OpFromGraph, by their places, and what becomes of them.

    Attributes
    ----------
    op
        The OpFromGraph.
    why
        Why it stays as it is, ``None`` if it need not.
    read
        The outputs that something reads, in any place where the OpFromGraph is applied.
    passed
        For each output that is an input, that input.
    same_output
        For each output that equals an earlier one, that one.
    why_apart
        Why readers of equal ends are not merged, if there are such ends and they stay.
    made
        The OpFromGraphs in place of this one, by their names.
    """

    def __init__(self, applied: AppliedGraph, sameness: Sameness) -> None:
        self.op = applied.op
        self.nodes = [node for node, _ in applied.nodes]
        self.why = why_it_stays(applied.op)
        self.read: set[int] = set()
        self.made: dict[str | None, OpFromGraph] = {}
        self._sources, self._generators = _sources(applied.op.fgraph)
        self._sameness = sameness
        self.passed: Mapping[int, int] = self._passed()
        self.same_output: Mapping[int, int] = self._same_outputs()
        self.why_apart: Reason | None = None
        self.apart: tuple[str, ...] = ()
        if self.passed or self.same_output:
            self.why_apart = self.why or _why_apart(graph for _, graph in applied.nodes)
        if self.why_apart is not None:
            self.apart = in_pairs(self.passed, self.same_output)
            self.passed, self.same_output = {}, {}
        self._set_needed()

    def keep_passed(self, place: int) -> None:
        """Leave an output that is an input to its readers."""
        self.passed = {output: to for output, to in self.passed.items() if output != place}
        self.same_output = self._same_outputs()
        self._set_needed()

    def adds_read(self, places: set[int]) -> bool:
        """Note that outputs are read; return whether that was not known."""
        if places <= self.read:
            return False
        self.read |= places
        self._set_needed()
        return True

    def _set_needed(self) -> None:
        """Work out the outputs that are kept, and the inputs that these are computed of."""
        kept = {self.same_output.get(place, place) for place in self.read - self.passed.keys()}
        # The next generator of draws stays where they do: other packages look for it there.
        size = -1
        while len(kept) > size:
            size = len(kept)
            sources = self._joint_sources(kept)
            kept |= {place for place, drawn in self._generators.items() if drawn & sources}
        self.kept_outputs = sorted(kept)
        self._needed = self._joint_sources(kept)
        inputs = range(len(self.op.fgraph.inputs))
        self.unread_inputs = [place for place in inputs if not self._needed >> place & 1]
        self.needed_inputs = set(inputs)
        if self.why is None:
            self.needed_inputs.difference_update(self.unread_inputs)

    def _joint_sources(self, outputs: Iterable[int]) -> int:
        sources = 0
        for place in outputs:
            sources |= self._sources[place]
        return sources

    @property
    def unread_outputs(self) -> list[int]:
        """The outputs that nothing reads."""
        kept = {*self.read, *self.kept_outputs}
        return [place for place in range(len(self.op.fgraph.outputs)) if place not in kept]

    @cached_property
    def staying_inputs(self) -> list[int]:
        """Those of the unread inputs without which the outputs would have other types."""
        if self.why is not None or not self.kept_outputs:
            return []
        stay = (_that_must_stay(node, self.unread_inputs) for node in self.nodes)
        return sorted({place for places in stay for place in places})

    @cached_property
    def same_input(self) -> Mapping[int, int]:
        """For each input that is an earlier one again, wherever the OpFromGraph is applied."""
        if self.why is not None:
            return {}
        first: dict[object, int] = {}
        found: dict[int, int] = {}
        for place in sorted(self.needed_inputs):
            given = tuple(id(node.inputs[place]) for node in self.nodes)
            earlier = first.setdefault((given, self.op.fgraph.inputs[place].type), place)
            if earlier != place and all(_may_merge(node, earlier, place) for node in self.nodes):
                found[place] = earlier
        return found

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """What goes that nothing reads, in words."""
        if self.why is not None:
            return ()
        staying = self.staying_inputs
        return in_words([i for i in self.unread_inputs if i not in staying], self.unread_outputs)

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """What stays that nothing reads, in words."""
        if self.why is None:
            return in_words(self.staying_inputs, ())
        return in_words(self.unread_inputs, self.unread_outputs)

    @cached_property
    def merged(self) -> tuple[str, ...]:
        """What goes since it equals something, with that, in words."""
        read = {place: self.passed[place] for place in self.passed.keys() & self.read}
        same = {place: to for place, to in self.same_output.items() if place in self.read}
        return in_pairs(read, same, self.same_input)

    def _passed(self) -> dict[int, int]:
        """Return the outputs that are inputs, where readers can read these in all places."""
        places = {variable: place for place, variable in enumerate(self.op.fgraph.inputs)}
        found = {
            output: places[variable]
            for output, variable in enumerate(self.op.fgraph.outputs)
            if variable in places and not isinstance(variable.type, RandomType)
        }
        return {
            output: place
            for output, place in found.items()
            if all(node.outputs[output].type == node.inputs[place].type for node in self.nodes)
        }

    def _same_outputs(self) -> dict[int, int]:
        """Return the outputs that equal an earlier one, and have its type in all places."""
        digests = Digests(self.op.fgraph.inputs, self._sameness)
        first: dict[object, int] = {}
        found: dict[int, int] = {}
        for place, variable in enumerate(self.op.fgraph.outputs):
            if place in self.passed or isinstance(variable.type, RandomType):
                continue
            types = tuple(node.outputs[place].type for node in self.nodes)
            earlier = first.setdefault((digests.of(variable), types), place)
            if earlier != place:
                found[place] = earlier
        return found


@dataclass(frozen=True, slots=True)
class AllEnds:
    """The ends of all OpFromGraphs that a graph and its bodies apply."""

    by_key: Mapping[GraphKey, Ends] = field(default_factory=dict)

    def of(self, op: Op, sameness: Sameness) -> Ends | None:
        """Return those of an OpFromGraph; ``None`` if it was made since, or PyTensor inlines it."""
        return self.by_key.get(graph_key(op, sameness)) if self.by_key else None


def all_ends(whole: AbstractFunctionGraph, sameness: Sameness) -> AllEnds:
    """Return what is read of each OpFromGraph, those that PyTensor inlines left out."""
    by_key: dict[GraphKey, Ends] = {}
    ends_of: dict[Apply, Ends] = {}
    graphs: dict[int, AbstractFunctionGraph] = {}
    for key, applied in applied_graphs(whole, sameness).items():
        if applied.op.is_inline:
            continue
        ends = by_key[key] = Ends(applied, sameness)
        for node, graph in applied.nodes:
            ends_of[node] = ends
            graphs[id(graph)] = graph
    for graph in graphs.values():
        if graph is not whole:
            _keep_inputs_apart(graph, ends_of)
    while sum(_finds_more(graph, ends_of) for graph in graphs.values()):
        pass
    return AllEnds(by_key)


def _keep_inputs_apart(body: AbstractFunctionGraph, ends_of: Mapping[Apply, Ends]) -> None:
    """Leave so many outputs to their readers that a body returns no more of its inputs.

    What an OpFromGraph returns is a copy. PyTensor confuses a row of a buffer that a step returns
    with the row that it writes.
    """
    for output in body.outputs:
        last: tuple[Ends, int] | None = None
        variable = memory_of(output)
        while (node := variable.owner) is not None:
            ends, place = ends_of.get(node), node.outputs.index(variable)
            if ends is None or place not in ends.passed:
                break
            last = ends, place
            variable = memory_of(node.inputs[ends.passed[place]])
        if node is None and last is not None:
            ends, place = last
            ends.keep_passed(place)


def _finds_more(graph: AbstractFunctionGraph, ends_of: Mapping[Apply, Ends]) -> bool:
    """Walk a graph from its outputs to its inputs; return whether more is read than was known."""
    finds_more = False
    read = set(graph.outputs)
    for node in reversed(graph.toposort()):
        places = {place for place, variable in enumerate(node.outputs) if variable in read}
        if not places:
            continue
        ends = ends_of.get(node)
        if ends is None:
            read.update(node.inputs)
            continue
        finds_more |= ends.adds_read(places)
        passed = {ends.passed[place] for place in places & ends.passed.keys()}
        read.update(node.inputs[place] for place in ends.needed_inputs | passed)
    return finds_more


def _sources(graph: AbstractFunctionGraph) -> tuple[list[int], dict[int, int]]:
    """Return which inputs each output is computed of, and each generator among them the next of.

    Inputs are the bits of a number.
    """
    reached: dict[Variable, int] = {v: 1 << place for place, v in enumerate(graph.inputs)}
    drawn = {v: bit for v, bit in reached.items() if isinstance(v.type, RandomType)}
    for node in graph.toposort():
        of_node = next_of = 0
        for variable in node.inputs:
            of_node |= reached.get(variable, 0)
            next_of |= drawn.get(variable, 0)
        for variable in node.outputs:
            reached[variable] = of_node
            if isinstance(variable.type, RandomType):
                drawn[variable] = next_of
    sources = [reached.get(variable, 0) for variable in graph.outputs]
    return sources, {i: drawn[v] for i, v in enumerate(graph.outputs) if v in drawn}


def _why_apart(graphs: Iterable[AbstractFunctionGraph]) -> Reason | None:
    """Return why two equal values cannot be one in graphs: one of them may be overwritten."""
    distinct = {id(graph): graph for graph in graphs}.values()
    at_work = next((n for graph in distinct for n in graph.apply_nodes if n.op.destroy_map), None)
    return None if at_work is None else because(Why.IN_PLACE, what=op_name(at_work.op))


def _may_merge(node: Apply, first: int, second: int) -> bool:
    """Whether two inputs, which get the same value, can be one: of a Blockwise, its signature says.

    The lengths of an output may be called after those of either.
    """
    if not isinstance(node.op, Blockwise):
        return True
    named = node.op.inputs_sig
    lengths = {name for output in node.op.outputs_sig for name in output}
    return named[first] == named[second] or lengths.isdisjoint(named[second])


def _that_must_stay(node: Apply, unread: Sequence[int]) -> list[int]:
    """Return the places of the unread inputs that the outputs would have other types without."""
    staying = [place for place in range(len(node.inputs)) if place not in unread]
    kept: list[int] = []
    if isinstance(node.op, Blockwise):
        for axis in range(node.op.batch_ndim(node)):
            # What a batch dimension is known to be: one, another length, or nothing.
            lengths = [variable.type.shape[axis] for variable in node.inputs]
            for is_told in (lambda length: length not in (None, 1), lambda length: length != 1):
                telling = [place for place, length in enumerate(lengths) if is_told(length)]
                if telling and not set(telling) & {*staying, *kept}:
                    kept.append(telling[0])
    return kept if staying or kept else list(unread[:1])


def why_inputs_stay(node: Apply) -> Reason:
    """Return why an unread input of a node stays."""
    return because(Why.CARRIES_BATCH if isinstance(node.op, Blockwise) else Why.ONE_INPUT)


def in_words(inputs: Iterable[int], outputs: Iterable[int]) -> tuple[str, ...]:
    """Return inputs and outputs in words: ``input 0``."""
    return (*(f"input {place}" for place in inputs), *(f"output {place}" for place in outputs))


def in_pairs(
    passed: Mapping[int, int], same_output: Mapping[int, int], same_input: Mapping[int, int] = _NONE
) -> tuple[str, ...]:
    """Return ends with those that they equal, in words: ``output 1 with output 0``."""
    return (
        *(f"input {place} with input {to}" for place, to in same_input.items()),
        *(f"output {place} with input {to}" for place, to in passed.items()),
        *(f"output {place} with output {to}" for place, to in same_output.items()),
    )
