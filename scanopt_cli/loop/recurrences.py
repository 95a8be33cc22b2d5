"""What the steps of a loop over numbers wait for, apart from what they do besides.

A step waits for the step before it only where states depend on states: in recurrences. What depends
on no state can be computed for many steps before, and what only reads the states for many steps
after (loop distribution; Kuck et al. 1981).

An affine recurrence, ``a * h + b``, waits for a product and a sum each step. Several steps are an
affine map, too: of two, ``a2 * a1 * h + (a2 * b1 + b2)``. So it may wait once for several steps,
whose coefficients are computed apart from what it waits for (scattered look-ahead; Parhi and
Messerschmitt 1989).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as scalars
from pytensor.scalar.basic import Composite, ScalarType
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.rewriting.scalarize import ScalarSubtensor

from scanopt_cli.loop.affine_forms import AffineForm, affine_forms
from scanopt_cli.loop.association import has_only_totals
from scanopt_cli.loop.costs import is_cheap
from scanopt_cli.loop.known_choices import with_known_conditions
from scanopt_cli.loop.row_access import ReadNumber, WriteRow
from scanopt_cli.loop.vector_math import vector_function

FEWEST_STEPS = 32
"""Fewer steps are done one after the other."""
_MOST_TOGETHER = 2
"""So many states of an affine recurrence: the factors of several steps are products of theirs."""
_LITTLE = 1
"""So many sums take no longer than it takes to write what they make, and to read it."""
_MOST_NODES = 128
_MOST_STATES = 12
"""So many states are kept of each of many steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Recurrence:
    """States that depend on each other, or one.

    Attributes
    ----------
    states
        Their positions among the states.
    forms
        What their next values have of them; ``None`` if it is not affine.
    is_read
        Whether they, or their next values, are read by others.
    level
        On how many recurrences they depend, one after the other.
    """

    states: tuple[int, ...]
    forms: Sequence[AffineForm] | None
    is_read: bool
    level: int

    @property
    def total(self) -> Variable | None:
        """What a step adds to the state, if it is one that nothing else reads."""
        if self.is_read or self.forms is None or len(self.states) > 1:
            return None
        factor = self.forms[0].factors.get(0)
        is_sum = isinstance(factor, Constant) and bool(factor.data == 1)
        return self.forms[0].term if is_sum else None


@dataclass(frozen=True, slots=True, eq=False)
class DistributedBody:
    """The body of a loop, whose steps may be done in parts.

    Attributes
    ----------
    inputs, outputs
        Those of the body, in which no arithmetic is fused.
    before
        What recurrences read that depends on the step, but on no state, and takes some arithmetic.
    recurrences
        Each after those that it depends on; all numbers among the states are in one.
    kept
        Those whose states are kept of each step: all but sums.
    arrays
        The positions of the other states: arrays of which a step sets rows.
    """

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    before: Sequence[Variable]
    recurrences: Sequence[Recurrence]
    kept: Sequence[Recurrence]
    arrays: tuple[int, ...]


def distributed(graph: FrozenFunctionGraph, n_states: int) -> DistributedBody | None:
    """Return the parts of a body; ``None`` if it is no arithmetic of numbers, or gains nothing.

    It gains where the recurrences are affine, and where a function such as exp is computed of
    several steps at once.
    """
    if len(graph.outputs) != n_states or has_only_totals(graph, n_states):
        return None
    if not all(type(node.op) is Composite or _is_simple(node) for node in graph.toposort()):
        return None
    inputs, outputs = graph.inputs, _with_known_conditions(_unfused(graph.outputs))
    nodes = list(toposort(outputs, blockers=inputs))
    states = inputs[1 : 1 + n_states]
    numbers = [i for i, state in enumerate(states) if isinstance(state.type, ScalarType)]
    arrays = tuple(i for i in range(n_states) if i not in numbers)
    depends = _dependencies(nodes, states)
    needs = [depends.get(new, 0) for new in outputs]
    if len(nodes) > _MOST_NODES or not all(map(_is_simple, nodes)):
        return None
    if any(needs[i] >> j & 1 for i in numbers for j in arrays):
        return None
    if _reads_written(nodes, depends, sum(1 << i for i in arrays)):
        return None
    if not all(_is_written(states[i], outputs[i]) for i in arrays):
        return None
    reads = Counter(v for node in nodes for v in node.inputs) + Counter(outputs)
    found = list(_recurrences(numbers, inputs[0], states, outputs, depends, reads))
    if _may_fail_if_unsure(nodes, found, outputs, depends):
        return None
    kept = [one for one in found if one.total is None]
    if sum(len(one.states) for one in kept) > _MOST_STATES:
        return None
    parts = [v for one in kept for v in _parts(one, outputs)]
    raising = [v for node in nodes for v in node.outputs if _may_raise(node)]
    before = _read_before(parts, raising, inputs, states)
    chains = set(toposort(parts, blockers=[*inputs, *before]))
    has_functions = any(vector_function(node) for node in nodes if node not in chains)
    if not has_functions and not all(one.forms for one in kept):
        return None
    return DistributedBody(inputs, outputs, before, found, kept, arrays)


def _parts(one: Recurrence, outputs: Sequence[Variable]) -> list[Variable]:
    """Return what a step of a recurrence computes."""
    if one.forms is None:
        return [outputs[i] for i in one.states]
    return [v for form in one.forms for v in form.variables()]


def _unfused(outputs: Sequence[Variable]) -> list[Variable]:
    """Return variables as they are computed without fused arithmetic of numbers."""
    new: dict[Variable, Variable] = {}
    for node in toposort(outputs):
        given = [new.get(v, v) for v in node.inputs]
        op: Any = node.op
        if type(op) is Composite:
            formula: Any = op.fgraph
            made = _unfused(formula.bind(dict(zip(formula.inputs, given, strict=True))))
        elif any(v in new for v in node.inputs):
            made = op.make_node(*given).outputs
        else:
            continue
        new |= dict(zip(node.outputs, made, strict=True))
    return [new.get(v, v) for v in outputs]


def _is_simple(node: Apply) -> bool:
    """Whether a node computes a number, or reads or sets numbers of a row; none is complex."""
    kinds = (getattr(v.type, "dtype", "") for v in (*node.inputs, *node.outputs))
    if any(str(kind).startswith("complex") for kind in kinds):
        return False
    if isinstance(node.op, WriteRow):
        # What is added would be added again where steps are done anew.
        return not node.op.adds and all(not getattr(v.type, "ndim", 0) for v in node.inputs[1:])
    if isinstance(node.op, ReadNumber | ScalarFromTensor | TensorFromScalar):
        return True
    if isinstance(node.op, ScalarSubtensor):
        return node.inputs[0].owner is None  # no array that the step writes
    if isinstance(node.op, CheckAndRaise):
        return not node.inputs[0].type.ndim
    is_number = all(isinstance(v.type, ScalarType) for v in node.outputs)
    return is_number and (is_cheap(node.op) or vector_function(node) is not None)


def _is_written(state: Variable, new: Any) -> bool:
    """Whether a next state is the array of the state, of which rows are written."""
    while new is not state and isinstance(new.owner_op, WriteRow):
        new = new.owner.inputs[0]
    return new is state


def _with_known_conditions(outputs: Sequence[Variable]) -> list[Variable]:
    """Return outputs with choices made once, unless what may raise an error would be dropped."""
    known = with_known_conditions(outputs)
    left = set(toposort(known))
    are_left = all(node in left for node in toposort(outputs) if _may_fail(node))
    return known if are_left else list(outputs)


def _may_fail(node: Apply) -> bool:
    """Whether a node may raise an error in a step."""
    return isinstance(node.op, CheckAndRaise | ScalarSubtensor | WriteRow)


def _may_fail_if_unsure(
    nodes: Sequence[Apply],
    found: Sequence[Recurrence],
    outputs: Sequence[Variable],
    depends: Mapping[Variable, int],
) -> bool:
    """Whether states by which the steps may have to be done anew decide on errors, or on rows.

    Then it is too late: the error is raised, or another row is written.
    """
    unsure = 0
    for one in found:
        needs = reduce(or_, (depends.get(outputs[i], 0) for i in one.states))
        if one.forms is not None or needs & unsure:
            unsure |= sum(1 << i for i in one.states)
    decisive = [
        v
        for node in nodes
        if _may_fail(node)
        for v in (node.inputs[1:2] if isinstance(node.op, WriteRow) else node.inputs)
    ]
    return any(depends.get(v, 0) & unsure for v in decisive)


def _reads_written(nodes: Sequence[Apply], depends: Mapping[Variable, int], arrays: int) -> bool:
    """Whether what is written to an array is computed of one of which rows are written.

    It would be read after it is written, in the same step or where steps are done anew.
    """
    writes = [node for node in nodes if isinstance(node.op, WriteRow)]
    return any(depends.get(v, 0) & arrays for node in writes for v in node.inputs[1:])


def _dependencies(nodes: Sequence[Apply], states: Sequence[Variable]) -> dict[Variable, int]:
    """Return on which states variables depend, as bits, if they do."""
    found = {state: 1 << i for i, state in enumerate(states)}
    for node in nodes:
        every = reduce(or_, (found.get(v, 0) for v in node.inputs), 0)
        if every:
            found |= dict.fromkeys(node.outputs, every)
    return found


def _recurrences(
    numbers: Sequence[int],
    index: Variable,
    states: Sequence[Variable],
    outputs: Sequence[Variable],
    depends: Mapping[Variable, int],
    reads: Mapping[Variable, int],
) -> Iterator[Recurrence]:
    levels: dict[int, int] = {}
    for together in _in_order(numbers, [depends.get(new, 0) for new in outputs]):
        own, new = [states[i] for i in together], [outputs[i] for i in together]
        bits = sum(1 << i for i in together)
        varying = {v for v, every in depends.items() if every & bits}
        is_float = all(str(v.type.dtype).startswith("float") for v in own)
        forms = affine_forms(new, own, varying) if is_float and len(own) <= _MOST_TOGETHER else None
        if forms is not None and len(own) > 1 and _vary(forms, [index, *states]):
            forms = None  # products of matrices in each step take longer than the steps wait
        others = reduce(or_, (depends.get(v, 0) for v in new)) & ~bits
        level = max((levels[i] + 1 for i in levels if others >> i & 1), default=0)
        levels |= dict.fromkeys(together, level)
        is_read = any(reads[v] > 1 for v in (*own, *new))
        yield Recurrence(tuple(together), forms, is_read, level)


def _vary(forms: Sequence[AffineForm], inputs: Sequence[Variable]) -> bool:
    """Whether factors depend on some inputs."""
    factors = [factor for form in forms for factor in form.factors.values()]
    return not set(inputs).isdisjoint((*factors, *ancestors(factors)))


def _in_order(states: Sequence[int], needs: Sequence[int]) -> Iterator[list[int]]:
    """Yield states that depend on each other together, each after those that it depends on."""
    reached = list(needs)
    for k in states:
        for i in states:
            if reached[i] >> k & 1:
                reached[i] |= reached[k]
    left = sorted(states, key=lambda i: (reached[i] | 1 << i).bit_count())
    while left:
        i = left[0]
        together = [j for j in left if j == i or (reached[i] >> j & 1 and reached[j] >> i & 1)]
        yield together
        left = [j for j in left if j not in together]


def _may_raise(node: Apply) -> bool:
    """Whether a number is read or checked in a way that raises errors: LLVM makes no vectors of it.

    Of a check, the number is what is made of its result.
    """
    is_checked = any(isinstance(v.owner_op, CheckAndRaise) for v in node.inputs)
    return isinstance(node.op, ScalarSubtensor) or (
        isinstance(node.op, ScalarFromTensor) and is_checked
    )


def _read_before(
    parts: Sequence[Variable],
    raising: Sequence[Variable],
    inputs: Sequence[Variable],
    states: Sequence[Variable],
) -> list[Variable]:
    """Return what depends on the step, but on no state: what may raise, or takes work.

    Of the latter, what recurrences read.
    """
    nodes = list(toposort([*parts, *raising], blockers=inputs))
    depends = _dependencies(nodes, states)
    varies = _dependencies(nodes, inputs[:1])
    work: dict[Variable, int] = {}
    for node in nodes:
        every = sum(work.get(v, 0) for v in node.inputs if v not in raising) + _work(node)
        work |= dict.fromkeys(node.outputs, every)
    read = [
        *raising,
        *parts,
        *(v for node in nodes if node.outputs[0] in depends for v in node.inputs),
    ]
    return [
        v
        for v in dict.fromkeys(read)
        if v in varies and v not in depends and (v in raising or work.get(v, 0) > _LITTLE)
    ]


def _work(node: Apply) -> int:
    """Return how long a number takes to compute, in sums; indices and reads take nothing."""
    if isinstance(node.op, ReadNumber) or not str(node.outputs[0].type.dtype).startswith("float"):
        return 0
    if isinstance(node.op, scalars.TrueDiv | scalars.Reciprocal | scalars.Sqrt):
        return 5
    return 10 if vector_function(node) else 1
