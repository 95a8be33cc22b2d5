"""What is decided of a step before its source is written: what is kept in memory, and how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.tensor.basic import TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.loop.array_views import View, is_write, view_of
from scanopt_cli.loop.axis_reductions import is_reduction
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.loop.products import Product
from scanopt_cli.loop.vector_math import WholeArrayFunction


@dataclass(slots=True)
class StepPlan:
    """Where the results of a step are, in the order of its nodes.

    Attributes
    ----------
    body
        The graph of the step.
    n_states
        How many states there are, whose next values are the first outputs.
    swapped
        The states with two buffers, which are swapped in each step. Another result that is kept in
        a state, as it is or as a part, gets new memory in each step.
    overwriting
        Of those, the next values that are written over the state, entry by entry: each entry is
        computed of that of the state, which nobody reads afterwards.
    kept
        The results whose memory becomes that of a state.
    reductions
        The results that a reduction alone reads, which is computed in one loop with them.
    views
        The parts of arrays that can be read where they are.
    computed
        What has to be in memory.
    """

    body: FrozenFunctionGraph
    n_states: int
    nodes: Sequence[Apply] = field(init=False)
    swapped: dict[int, Variable] = field(init=False)
    overwriting: dict[Variable, Variable] = field(init=False)
    kept: set[Variable] = field(init=False)
    reductions: dict[Variable, Apply] = field(init=False, default_factory=dict)
    views: dict[Variable, View] = field(init=False, default_factory=dict)
    computed: set[Variable] = field(init=False)

    def __post_init__(self) -> None:
        """Make the plan."""
        self.nodes = self.body.toposort()
        self._find_swapped_states()
        self._find_reductions()
        self._find_views()
        self._find_computed()
        self._find_overwriting()

    @property
    def fresh(self) -> set[Variable]:
        """The results that get new memory in each step."""
        return self.kept - set(self.swapped.values())

    def is_read_in_place(self, node: Apply) -> bool:
        """Whether kernels alone read what a node makes, and can read it where it is."""
        can_be = is_number(node) or node.outputs[0] in self.views
        return can_be and self.computed.isdisjoint(node.outputs)

    def is_added_up(self, node: Apply) -> bool:
        """Whether the kernel of what a node reads computes the node too."""
        return bool(node.inputs) and node.inputs[0] in self.reductions

    def view(self, variable: Variable) -> View | None:
        """Return the part of an array that a variable is, if it is read where it is."""
        return None if variable in self.computed else self.views.get(variable)

    def _find_swapped_states(self) -> None:
        states = self.body.inputs[1 : 1 + self.n_states]
        results = self.body.outputs[: self.n_states]
        kept = [memory_of(v, has_own_memory) for v in results]
        self.kept = set(kept)
        self.swapped = {
            i: result
            for i, result in enumerate(results)
            if kept[i] is result and has_own_memory(result.owner) and states[i] not in kept
        }

    def _find_reductions(self) -> None:
        nodes = self.nodes
        readers = Counter((*self.body.outputs, *(v for node in nodes for v in node.inputs)))
        for node in filter(is_reduction, nodes):
            source = node.inputs[0]
            made = source.owner
            if (
                made is not None
                and isinstance(made.op, Elemwise)
                and is_kernel(made)
                and not isinstance(made.op.scalar_op, WholeArrayFunction)
                and readers[source] == 1
            ):
                self.reductions[source] = node

    def _find_views(self) -> None:
        overwritten, last = self._overwritten(), self._last_positions()
        for node in self.nodes:
            found = view_of(node, self.views) if _is_view(node) and not is_number(node) else None
            if found is None:
                continue
            # What indices pick is read later than where it is picked. Of other parts, PyTensor
            # knows that they are read before their array is overwritten.
            (output,) = node.outputs
            roots = [memory_of(v, has_own_memory) for v in found.variables()]
            is_kept = all(last[output] < overwritten.get(v, len(self.nodes)) for v in roots)
            if is_kept or not isinstance(node.op, AdvancedSubtensor):
                self.views[output] = found

    def _overwritten(self) -> dict[Variable, int]:
        """Return the first nodes that overwrite memory, by their positions."""
        found: dict[Variable, int] = {}
        for i, node in enumerate(self.nodes):
            if not has_own_memory(node):
                for place in (k for places in node.op.destroy_map.values() for k in places):
                    found.setdefault(memory_of(node.inputs[place], has_own_memory), i)
        return found

    def _last_positions(self) -> dict[Variable, int]:
        """Return the last nodes that read a variable, or a part of it, by their positions."""
        found = dict.fromkeys(self.body.outputs, len(self.nodes))
        for i, node in reversed(list(enumerate(self.nodes))):
            read = max(found.setdefault(v, i) for v in node.outputs) if _is_view(node) else i
            for v in node.inputs:
                found[v] = max(found.get(v, i), read)
            for v in node.outputs:
                found.setdefault(v, i)
        return found

    def _find_computed(self) -> None:
        self.computed = set(self.body.outputs)
        for node in reversed(self.nodes):
            if self.is_read_in_place(node):
                view = self.views.get(node.outputs[0])
                self.computed.update(() if view is None else view.variables())
            elif isinstance(node.op, AdvancedIncSubtensor) and is_write(node):
                # A kernel reads the indices; the array may be written in place.
                self.computed.update(node.inputs[:2])
            elif not is_kernel(node):
                self.computed.update(node.inputs)

    def _find_overwriting(self) -> None:
        last = {memory: node for node in self.nodes for memory in self._reads(node)}
        # The loop reads these after the step, to write them into traces.
        outputs = {memory_of(v, has_own_memory) for v in self.body.outputs}
        self.overwriting = {}
        for i, result in self.swapped.items():
            state = self.body.inputs[1 + i]
            node = last.get(state)
            if state in outputs or node is None or node is not result.owner:
                continue
            if not isinstance(node.op, Elemwise):
                continue
            others = [v for v in node.inputs if v is not state]
            is_alone = all(memory is not state for v in others for memory in self._memories(v))
            kinds = {(v.type.dtype, v.type.broadcastable) for v in (state, result)}
            if len(others) < len(node.inputs) and is_alone and len(kinds) == 1:
                self.overwriting[result] = state

    def last_reads(self) -> dict[Apply, list[Variable]]:
        """Return for each node the buffers that no later node reads, and no output is."""
        last: dict[Variable, Apply] = {}
        for node in self.nodes:
            last |= dict.fromkeys(self._reads(node), node)
        kept = {memory_of(v, has_own_memory) for v in self.body.outputs} | self.kept
        found: dict[Apply, list[Variable]] = {}
        for memory, node in last.items():
            is_written = has_own_memory(memory.owner) and memory not in self.reductions
            if is_written and memory not in kept:
                found.setdefault(node, []).append(memory)
        return found

    def _reads(self, node: Apply) -> Iterable[Variable]:
        """Yield whose memory a node reads."""
        for variable in node.inputs:
            yield from self._memories(variable)

    def _memories(self, variable: Variable) -> Iterable[Variable]:
        """Yield whose memory is read where a variable is, that of indices included."""
        view = self.view(variable)
        for read in [variable] if view is None else view.variables():
            yield memory_of(read, has_own_memory)


def has_own_memory(node: Apply | None) -> bool:
    """Whether a step computes what a node computes in memory of its own."""
    return node is not None and (is_kernel(node) or isinstance(node.op, Product))


def is_kernel(node: Apply) -> bool:
    """Whether a kernel computes what a node makes, into a buffer."""
    if isinstance(node.op, AdvancedIncSubtensor):
        return not node.op.inplace and is_write(node)
    return is_reduction(node) or (
        isinstance(node.op, Elemwise)
        and node.outputs[0].type.ndim > 0
        and all(isinstance(v.type, DenseTensorType) for v in (*node.inputs, *node.outputs))
    )


def _is_view(node: Apply) -> bool:
    return isinstance(node.op, AdvancedSubtensor | DimShuffle | Subtensor)


def is_number(node: Apply) -> bool:
    """Whether a node makes an array of one number, or gives such an array dimensions."""
    if isinstance(node.op, DimShuffle):
        (source,) = node.inputs
        return source.owner is not None and is_number(source.owner)
    return isinstance(node.op, TensorFromScalar)
