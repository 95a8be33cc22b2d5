"""Move sums of outer products out of a loop, as matrix products."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.accumulators import added, outer_product, readers
from scanopt_cli.analysis.step_rows import invariant_inputs, step_rows
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because

if TYPE_CHECKING:
    from scanopt_cli.passes.push_out_sums.stacked_products import StackedProduct
    from scanopt_cli.passes.push_out_sums.vector_traces import VectorTrace


@dataclass(frozen=True)
class PushOutSums(AnyLoopPass):
    """Turn a state that accumulates outer products into one matrix product after the loop.

    In each step, the gradient of a recurrent network adds the product of a column ``d_t`` and a row
    ``h_t`` to the gradient of its weights, which reads and writes a whole matrix. With the ``d_t``
    and the ``h_t`` of all steps as the rows of D and H, the sum is ``D.T @ H``. It takes Scans and
    TracedLoops, whose steps read entries of constants by the index.

    Legal cases:

    1. ``S + c_t * r_t``, with ``c_t`` a column and ``r_t`` a row, each a product or a quotient of
       any factors, numbers included. Several such terms, added or subtracted, become as many matrix
       products.
    2. A column or a row that is an entry of a sequence is read from the sequence, if that is
       provably long enough, and exactly so if the trip count may be negative; any other column or
       row gets a trace.
    3. ``S + A_t @ B_t``, with ``A_t`` and ``B_t`` matrices that are entries of such sequences, or
       their transposes. The sum is one product of all ``A_t`` side by side, and all ``B_t`` below
       each other.

    The initial value of the state is added after the loop.

    Preconditions: nothing else in the body reads the state or its update, and outside only the last
    value is read (``S[-1]``, or a state without a trace). The state is a matrix of floats, with
    neither axis known to be of length 1. Each column and each row depends on a sequence or a state:
    an invariant vector is not worth a copy for each step. There is no stop condition, the loop is
    not batched, and no step works in place.

    The sum is rounded in a different order, as by PyTensor's own ``push_out_dot1``. The traces hold
    two vectors for every step, where the state held one matrix. Shapes that do not fit raise other
    errors, or none where the sum can be broadcast.

    Out of scope: products of matrices that a step computes, since their shape is not known outside
    if the loop runs no step; and all other sums, which are cheaper as states than as traces.
    """

    name: ClassVar[str] = "push-out-sums"
    accepts_in_place: ClassVar[bool] = False

    matrices: bool = True
    """whether to take case 3; JAX takes no shape that is computed"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Leave case 3 out for JAX."""
        return replace(self, matrices=target.linker != "jax")

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, with the sums computed after the loop."""
        names = context.names(view)
        slots = [slot for slot in view.of_kind(*_ACCUMULATING) if _is_matrix(slot)]
        if not slots:
            return None
        view.unfreeze()
        counts = readers(view.inner_outputs())
        sums = []
        for slot in slots:
            found = _sum(view, slot, counts, _lasts(slot, context))
            if found is None or (found.stacked and not self.matrices):
                continue
            reason = _unfit(view, found, context)
            if reason is not None:
                context.missed(view, Code.SUM_KEPT, reason, names[slot])
            else:
                context.passed(view, Code.SUM_MOVED, names[slot])
                sums.append(found)
        return _pushed_out(view, sums) if sums else None


type Vectors = tuple[Variable, Variable]

_ACCUMULATING = (SlotKind.SIT_SOT, SlotKind.UNTRACED, SlotKind.STATE)


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A state that accumulates products; ``lasts`` are the outer reads of its last value."""

    slot: Slot
    products: list[Vectors]
    stacked: list[StackedProduct]
    lasts: list[Variable]


def _is_matrix(slot: Slot) -> bool:
    """Whether a state and its update are float matrices of one dtype, no axis known to be 1."""
    state, update = slot.inner_inputs[0].type, slot.inner_outputs[0].type
    if not (isinstance(state, TensorType) and isinstance(update, TensorType)):
        return False
    dtype = str(state.dtype)
    return (
        dtype.startswith("float")
        and state.broadcastable == update.broadcastable == (False, False)
        and update.dtype == dtype
    )


def _sum(
    view: SlotView, slot: Slot, counts: Counter[Variable], lasts: list[Variable]
) -> _Sum | None:
    """Return the products that a state accumulates; ``None`` if it does anything else."""
    from scanopt_cli.passes.push_out_sums.stacked_products import stacked_product

    state, update = slot.inner_inputs[0], slot.inner_outputs[0]
    found = _Sum(slot, [], [], lasts)
    for term in added(state, update, counts) or ():
        product = outer_product(term)
        stacked = None if product is not None else stacked_product(view, term)
        if product is not None:
            found.products.append(product.vectors(state.type.dtype))
        elif stacked is not None:
            found.stacked.append(stacked)
        else:
            return None
    return found if found.products or found.stacked else None


def _unfit(view: SlotView, found: _Sum, context: PassContext) -> Reason | None:
    """Return why a sum of products has to stay in the loop, ``None`` if it can leave."""
    slot = found.slot
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if view.batch_ndim:
        return because(Why.LOOP_BATCHED)
    if slot.kind is not SlotKind.UNTRACED:
        reads = [n for n, _ in context.clients(slot.outer_output)]
        if not {v.owner for v in found.lasts}.issuperset(reads):
            return because(Why.READ_ELSEWHERE)
    invariant = set(invariant_inputs(view))
    for vector in (vector for vectors in found.products for vector in vectors):
        if invariant.issuperset(v for v in graph_inputs([vector]) if not isinstance(v, Constant)):
            return because(Why.ADDEND_INVARIANT)
    return None


def _lasts(slot: Slot, context: PassContext) -> list[Variable]:
    """Return the outer variables that are the last value of a state: ``S[-1]`` or an output."""
    if slot.kind is SlotKind.UNTRACED:
        return [slot.output]
    reads = [(n, read_index(n, 0)) for n, at in context.clients(slot.outer_output) if not at]
    rows = [
        node.outputs[0] for node, index in reads if index and index.row == -1 and not index.rest
    ]
    return rows if slot.last is None else [*rows, slot.last]


def _pushed_out(view: SlotView, sums: list[_Sum]) -> dict[Variable, Variable]:
    """Return replacements for the outputs of ``view`` without ``sums``, and for each last value."""
    from scanopt_cli.passes.push_out_sums.vector_traces import trace_of

    rows = step_rows(view)  # also those that the sums alone read
    view.slots = [slot for slot in view.slots if all(slot is not each.slot for each in sums)]
    traces: dict[Variable, VectorTrace] = {}
    for each in sums:
        shape = _start(each.slot).shape
        for vectors in each.products:
            for axis, vector in enumerate(vectors):
                if vector not in traces:
                    traces[vector] = trace_of(view, vector, rows.get(vector), shape[axis])
    results = view.rebuild() if view.outputs() else dict.fromkeys(view.counts, view.n_steps)
    steps = {vector: trace.steps(results) for vector, trace in traces.items()}
    for trace in traces.values():
        results.pop(trace.source, None)
    for each in sums:
        total = _start(each.slot)
        for column, row in each.products:
            total = total + pt.dot(steps[column].T, steps[row])
        for product in each.stacked:
            total = total + product.total()
        results |= dict.fromkeys(each.lasts, total)
    return results


def _start(slot: Slot) -> Any:
    """Return the initial value of a state."""
    buffer: Any = slot.outer_input
    return buffer[0] if slot.kind is SlotKind.SIT_SOT else buffer
