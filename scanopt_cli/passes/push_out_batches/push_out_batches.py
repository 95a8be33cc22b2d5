"""Compute with the matrices of a sequence for all steps at once, before the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.row_growth import Growth
from scanopt_cli.analysis.step_rows import (
    StepRow,
    add_rows,
    invariant_inputs,
    is_read_backwards,
    step_rows,
)
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.inner_graphs import core_op, op_name
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.push_out.hoisting import invariant_nodes, is_total
from scanopt_cli.passes.push_out.rows_of_all_steps import unfit_rows
from scanopt_cli.passes.push_out_batches.batched_nodes import (
    at_all_steps,
    is_dear,
    is_product,
    is_smaller_than_matrix,
    is_solution,
)
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext, check_from_zero
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because

_MOST = 256 << 20


@dataclass(frozen=True)
class PushOutBatches(AnyLoopPass):
    """Compute with the matrices of sequences for all steps at once, before the loop.

    What a step computes of rows of sequences and of invariants alone, it need not compute in the
    loop: the rows of the results are a sequence. A forward and a backward loop that factor the same
    matrices share the factors. It takes Scans and TracedLoops, whose steps read rows of constants
    by the index.

    Legal cases:

    1. A solution by an invariant matrix, of rows as right sides: all steps are one system with a
       column for each step. If there may be no step, an ``ifelse`` solves it only if there is one.
    2. ``X[t] @ W`` and ``W @ X[t]``, with an invariant matrix: one product of matrices.
    3. Determinants of rows, and solutions by rows that are vectors (``det(X[t])``,
       ``solve(X[t], b[t])``): one batch (a ``Blockwise``).
    4. Factors, inverses and products of rows (``cholesky(X[t])``), and solutions that are matrices:
       one batch.
    5. Elementwise arithmetic of rows that one of these is computed of moves along.

    With ``products=false`` case 2 stays in the loop, with ``determinants=false`` case 3, and with
    ``factors=false`` case 4: where Numba compiles the steps, a batch computes no faster than they
    do, and what it makes has to be written to memory and read again. What it may gain is that a
    loop and its gradient share it. Times of matrices of 2x2 to 30x30 in 20 to 2,000 steps, by a
    batch and by steps:

    * In Scans (the preset ``grad``), case 3 takes 0.91 to 1.03 times as long, and 0.34 to 0.89
      times with the gradient. A Cholesky factor takes up to 1.6 times as long, and 0.98 to 1.18
      times with the gradient. So case 3 moves there, and case 4 does not.
    * In TracedLoops (the preset ``loop``), solutions take 0.85 to 3.2 times as long, factors 1.1 to
      1.8 times, determinants 0.96 to 1.01 times; with the gradient 0.95 to 1.7 times, since
      ``keep-values`` has loops share them. So both stay. Of products, those of small matrices in
      many steps take down to 0.57 times as long, those of 30x30 1.18 times.

    Preconditions: a step always computes it: it is in no branch, there is no stop condition, and
    the loop is not batched. No step works in place. The sequences are cut to the trip count, unless
    they provably have that many rows; one that is cut does not have one row by its type; of what a
    TracedLoop indexes, there provably is a row for each step. Invariants are inputs, constants, or
    computed of them without errors. No sequence is a loop's trace that is read backwards, as
    gradients do: see ``keep-values``; nor is one computed of a Scan's trace of arrays, unless the
    loop provably runs a step: of no steps, a Scan returns a trace of other lengths.

    The results of all steps take at most ``max_growth`` bytes more than the sequences that are read
    no longer. If that depends on lengths that are not known, it is computed unless the results have
    more axes than all that they are computed of.

    Products are summed in a different order. If shapes do not fit, the result raises an error even
    if the loop runs no step.

    Out of scope: sums and other reductions of rows; products of vectors and matrices, which
    ``push-out-products`` moves.
    """

    name: ClassVar[str] = "push-out-batches"
    accepts_in_place: ClassVar[bool] = False
    accepts_batched: ClassVar[bool] = False

    max_growth: int = _MOST
    """how many bytes the results of a loop may take more than the sequences they replace"""
    products: bool = True
    """whether to take case 2"""
    determinants: bool = True
    """whether to take case 3"""
    factors: bool = True
    """whether to take case 4"""

    def __post_init__(self) -> None:
        """Check the option."""
        check_from_zero(max_growth=self.max_growth)

    def adapted(self, target: CompilationTarget) -> Self:
        """Take all cases unless Numba compiles the steps, and what is chosen if it does."""
        is_slow = target.linker != "numba"
        return replace(self, products=True, determinants=True, factors=True) if is_slow else self

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that reads the results."""
        view.unfreeze()
        found = _Movable.of(view, self._takes)
        if not found.read:
            if found.staying:
                as_fast = because(Why.STEPS_AS_FAST)
                context.missed(
                    view, Code.ROWS_NOT_COMPUTED, as_fast, ops=_names_of_ops(found.staying)
                )
            return None
        lengths = Lengths(view.n_steps)
        ops = _names_of_ops(found.dear)
        rows = [found.rows[v] for v in ancestors(found.read) if v in found.rows]
        reason = _unfit(view, rows, lengths)
        if reason is None:
            growth = found.growth(view, rows, lengths)
            if not growth.fits(self.max_growth):
                reason = because(Why.ROWS_LARGE, growth=str(growth), most=self.max_growth)
        if reason is not None:
            context.missed(view, Code.ROWS_NOT_COMPUTED, reason, ops=ops)
            return None
        context.passed(view, Code.ROWS_COMPUTED, ops=ops, growth=str(growth))
        whole = found.at_all_steps(view, rows, lengths)
        inner = {v: add_rows(view, whole[v], v.type) for v in found.read}
        view.set_inner_outputs(graph_replace(view.inner_outputs(), inner, strict=False))
        return view.rebuild()

    def _takes(self, node: Apply, is_row: Sequence[bool]) -> bool:
        """Whether the options let the pass move a dear node."""
        if is_solution(node, is_row):
            return True
        if is_product(node, is_row):
            return self.products
        return self.determinants if is_smaller_than_matrix(node) else self.factors


def _names_of_ops(nodes: Sequence[Apply]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(op_name(core_op(node.op)) for node in nodes))


def _unfit(view: SlotView, rows: Sequence[StepRow], lengths: Lengths) -> Reason | None:
    """Return why rows cannot be computed with before the loop, ``None`` if they can."""
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if any(is_read_backwards(row.slot.outer_input) for row in rows):
        return because(Why.TRACE_BACKWARDS)
    if not all(row.keeps_shape(lengths) for row in rows):
        return because(Why.TRACE_OF_NO_STEPS)
    why = unfit_rows(rows, lengths)
    return None if why is None else because(why)


@dataclass(frozen=True, slots=True)
class _Movable:
    """What can be computed before an unfrozen loop, and is worth it.

    Attributes
    ----------
    rows
        The rows that a step reads.
    invariant
        What is the same in all steps, and computed without an error.
    dear
        The nodes for which it pays.
    staying
        Those that are left to the steps.
    nodes
        These and what they are computed by, in order.
    read
        What the rest of the step reads of what they compute.
    """

    rows: Mapping[Variable, StepRow]
    invariant: set[Variable]
    dear: Sequence[Apply]
    staying: Sequence[Apply]
    nodes: Sequence[Apply]
    read: Sequence[Variable]

    @classmethod
    def of(cls, view: SlotView, takes: Callable[[Apply, Sequence[bool]], bool]) -> _Movable:
        """Find it in the body of a loop, of dear nodes that ``takes`` lets pass."""
        outputs = view.inner_outputs()
        order = list(io_toposort([], outputs))
        rows, invariant = step_rows(view), set(invariant_inputs(view))
        safe = [node for node in order if is_total(node) and not is_dear(node)]
        invariant.update(v for node in invariant_nodes(safe, invariant) for v in node.outputs)
        varying = set(rows)
        always = always_computed(outputs)
        dear: list[Apply] = []
        staying: list[Apply] = []
        movable: set[Apply] = set()
        for node in order:
            if node.outputs[0] in rows or varying.isdisjoint(node.inputs) or node not in always:
                continue
            if not all(v in varying or v in invariant or _is_literal(v) for v in node.inputs):
                continue
            if is_dear(node):
                if not takes(node, [v in varying for v in node.inputs]):
                    staying.append(node)
                    continue
                dear.append(node)
            elif not isinstance(node.op, Elemwise | DimShuffle):
                continue
            movable.add(node)
            varying.update(node.outputs)
        needed = set(ancestors([v for node in dear for v in node.outputs]))
        nodes = [node for node in order if node in movable and not needed.isdisjoint(node.outputs)]
        return cls(rows, invariant, dear, staying, nodes, list(_read(nodes, order, outputs)))

    def at_all_steps(
        self, view: SlotView, rows: Sequence[StepRow], lengths: Lengths
    ) -> dict[Variable, Any]:
        """Return what the nodes compute in all steps, by what they compute in one.

        Where a backward loop reads rows from last to first, it is computed in the order of the
        forward loop, which then has it, too.
        """
        whole: dict[Variable, Any] = {row.inner: row.at_all_steps(view, lengths) for row in rows}
        forwards = {inner: _turned(array) for inner, array in whole.items()}
        is_turned = None not in forwards.values()
        if is_turned:
            whole = forwards
        known: dict[Variable, Any] = dict(invariant_inputs(view))
        n_steps = None if lengths.runs() else view.n_steps
        moved = set(self.nodes)
        for node in io_toposort([*whole, *known], list(self.read)):
            inputs = [whole.get(v, known.get(v, v)) for v in node.inputs]
            if node in moved:
                is_row = [v in whole for v in node.inputs]
                made = at_all_steps(node, inputs, is_row, n_steps)
                whole.update(zip(node.outputs, made, strict=True))
            else:
                outside = node.op.make_node(*inputs).outputs
                known.update(zip(node.outputs, outside, strict=True))
        return {v: whole[v][::-1] if is_turned else whole[v] for v in self.read}

    def growth(self, view: SlotView, rows: Sequence[StepRow], lengths: Lengths) -> Growth:
        """Return how much more the results take than what is read no longer."""
        first = {row.inner: cast(Any, row.slot.outer_input)[0] for row in rows}
        sources = [row.slot.outer_input for row in rows]
        made = substituted(self.read, {**invariant_inputs(view), **first})
        return Growth.of(made, self._unread(view, rows), sources, lengths)

    def _unread(self, view: SlotView, rows: Sequence[StepRow]) -> Iterator[Any]:
        """Yield the arrays of which a step reads nothing but what these nodes are computed of."""
        stand_ins: dict[Variable, Variable] = {v: v.type() for v in self.read}
        left = set(ancestors(graph_replace(view.inner_outputs(), stand_ins, strict=False)))
        for slot in dict.fromkeys(row.slot for row in rows):
            if slot.inner_inputs[0] not in left:
                yield slot.outer_input


def _turned(array: Any) -> Any:
    """Return the array whose rows another one has from last to first, if it is one."""
    if isinstance(array.owner_op, Subtensor):
        match indices_of(array.owner):
            case [slice(start=None, stop=None, step=step)] if number(step, 0) == -1:
                return array.owner.inputs[0]
    return None


def _is_literal(variable: Variable) -> bool:
    return isinstance(variable, Constant)


def _read(
    nodes: Sequence[Apply], order: Sequence[Apply], outputs: Sequence[Variable]
) -> Iterator[Variable]:
    """Yield what other nodes, or the loop, read of what ``nodes`` compute, and would compute.

    What takes no longer than to read it is computed again.
    """
    moved = set(nodes)
    everywhere = [v for node in order if node not in moved for v in node.inputs]
    for variable in dict.fromkeys((*everywhere, *outputs)):
        node = variable.owner
        if node in moved and (is_dear(node) or is_costly(node.op)):
            yield variable
