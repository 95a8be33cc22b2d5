"""Compose slices and forward stores to loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import walk_toposort

from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.passes.clean_slices.buffer_facts import BufferFacts
from scanopt_cli.passes.clean_slices.implied_facts import ConditionalFacts, ImpliedFacts
from scanopt_cli.passes.clean_slices.lengths_of_outputs import length_by_trip_count
from scanopt_cli.passes.clean_slices.reads import composed_slice, forwarded_load, single_element
from scanopt_cli.passes.clean_slices.writes import (
    filled_buffer,
    full_write,
    may_lose_shape,
    merged_writes,
    simplified_write,
)
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code, Why

type _Rule = Callable[[Apply, BufferFacts], Variable | None]

_RULES: tuple[tuple[Code, _Rule], ...] = (
    (Code.LENGTH_COUNTED, length_by_trip_count),
    (Code.BUFFER_DROPPED, full_write),
    (Code.WRITE_MOVED, merged_writes),
    (Code.WRITE_SIMPLIFIED, simplified_write),
    (Code.START_FILLED, filled_buffer),
    (Code.STORE_FORWARDED, forwarded_load),
    (Code.SLICE_COMPOSED, composed_slice),
    (Code.ROW_TAKEN, single_element),
)


@dataclass(frozen=True)
class CleanSlices(Pass):
    """Compose slices, forward stores to loads, and remove needless buffers.

    Legal cases, each along one axis:

    1. A chain of slices becomes one slice, and an index into a chain of slices becomes one index,
       where the lengths determine which rows are read: for 5 rows ``x[:-1][::-1][:4]`` becomes
       ``x[3::-1]``, two reversals cancel, and a slice that takes all rows is removed. A reversal
       and constant bounds that count from one end compose for any length: ``x[::-1][:3]`` and
       ``x[-3:][::-1]`` become ``x[:-4:-1]``, ``x[::-1][i]`` becomes ``x[-1-i]``.
    2. Case 1 applies to every variable, also to the sequences of a Scan and the readers of its
       outputs.
    3. A read or write of a slice gets simpler bounds where they exist: for 5 rows ``x[3:-6:-1]``
       becomes ``x[3::-1]``. One form replaces another only if it has fewer or cheaper bounds.
       Known bounds count from the start, except that the last row is ``-1``; other bounds count
       from the end where that makes them numbers.
    4. Nested writes into zeros become one write: ``z[1:].inc(z[-1].inc(v))`` becomes
       ``z[-1].inc(v)``, also through slices and reversals, along any axis. A write to all rows of
       zeros becomes the written value.
    5. A buffer whose every row is set becomes the value that is set. Rows read back from a buffer
       become the written value if the write covers all of them, rows of the buffer before the
       write if it covers none of them, or the one value that all rows share. A single row is
       written or read without the axis of length 1 that was inserted for it.
    6. A sum over an axis of length 1 becomes the element, and so does a squeeze of such an axis.
    7. A length computed from a loop's output becomes the loop's trip count plus a constant.
    8. The initial buffer of a state, of at most 8 rows in all, ``AllocEmpty(5)[:1].set(h0)``,
       becomes ``Alloc(h0, 5)``, without the write and the axis inserted for ``h0``.

    Preconditions: lengths are affine expressions, and every comparison of them that a rewrite needs
    is proved; without a proof the pass leaves the node alone. So an index out of bounds stays an
    error, and 0 rows stay 0 rows. For a symbolic trip count ``n`` the read ``x[1:][-1]`` stays as
    it is, since ``n`` may be 0; nodes that depend on such a read are rewritten, since they run only
    if it succeeded. A written value that is read back has the shape of the rows it is written to,
    or is a scalar, and is not cast. Nor is it, in two or more dimensions, of what a Scan traced
    that may run no step: PyTensor loses its shape then, whatever its type says, so the write stays,
    with its error. No node of the graph works in place. Slices have step 1 or -1, or read one row
    of a known number of rows.

    As PyTensor does, the pass replaces ``0.0 + x`` by ``x``: a ``-0.0`` that is added to zeros, or
    summed over an axis of length 1, stays ``-0.0``, where it became ``0.0`` before. Dead
    computations raise no more: an error in a row that is no longer read, or in a loop of which only
    the length was read, is lost.

    The pass never writes a reversed slice of one row, nor a reversed slice from the last row back
    to a row at an unknown distance: where the length is known, PyTensor reads ``x[:-2:-1].sum()``
    as ``x[0]``. For the same reason the pass puts no lengths on types: a loop output of static
    length would let PyTensor misread the slices that are not rewritten, such as ``x[:-3:-2]``.
    PyTensor's own loop rewrites would also insert a SpecifyShape where they rebuild a loop.

    The initial buffer of a longer state keeps its form, with the axis inserted for ``h0``, since
    PyTensor's memory saving looks for that form: for ``[0].set(h0)`` it keeps all rows, and on
    ``[:1].set(h0)`` without the axis it fails. Filling all rows would cost time.

    Out of scope: advanced indices, slices of several axes at once, indices that differ within a
    batch (a Blockwise of slices), and the value that all rows share along an axis other than the
    first.
    """

    name: ClassVar[str] = "clean-slices"
    everywhere: ClassVar[bool] = True
    # Most rewrites enable others later in the same sweep; only a few take another sweep.
    sweeps: ClassVar[int] = 20

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Try every rule on each node of ``context.fgraph``."""
        if not context.is_in_place():
            yield from _Sweep(context).rewrites()


class _Sweep:
    """One walk over a graph in topological order.

    Nodes that a rule creates are tried at once, and the readers of the node come later in the walk.
    So a chain of slices takes one sweep, not one sweep for each link.
    """

    def __init__(self, context: PassContext) -> None:
        self._context = context
        self._fgraph: FunctionGraph = context.fgraph
        self._ahead = ImpliedFacts()
        self._kept: set[Apply] = set()
        # Where the walk is, and was at each node; what a rule makes of a node has its place.
        self._place = 0
        self._places: dict[Apply | None, int] = {}
        # Of each read, which variables need it.
        self._needing: dict[Variable, dict[Variable, bool]] = {}

    def rewrites(self) -> Iterator[Rewrite]:
        """Yield what the rules make of the nodes."""
        for place, node in enumerate(self._fgraph.toposort()):
            self._place = place
            todo = [node]
            while todo:
                part = todo.pop()
                self._places[part] = place
                attempts = self._ahead.of(part)
                if part not in self._fgraph.apply_nodes or len(part.outputs) != 1:
                    continue
                found = self._rewritten(part, attempts)
                if found is not None:
                    code, new = found
                    if new not in self._fgraph.variables:
                        new.name = part.outputs[0].name
                    fresh = [v.owner for v in self._fresh(new) if v.owner is not None]
                    self._context.passed(None, code)
                    yield Rewrite({part.outputs[0]: new})
                    todo += reversed(fresh)

    def _rewritten(
        self, node: Apply, attempts: list[ConditionalFacts]
    ) -> tuple[Code, Variable] | None:
        """Return the code of the first rule that applies to ``node``, and its result."""
        for attempt in attempts:
            for code, rule in _RULES:
                new = rule(node, attempt.facts)
                if new is None or not self._fits(node.outputs[0], new):
                    continue
                if attempt.read is None or self._needs(new, attempt.read):
                    return code, new
        if node not in self._kept and any(may_lose_shape(node, one.facts) for one in attempts):
            self._kept.add(node)
            self._context.missed(None, Code.BUFFER_LEFT, Why.TRACE_OF_NO_STEPS)
        return None

    def _fits(self, old: Variable, new: Variable) -> bool:
        """Whether ``new`` may replace ``old``, by its type and by what it is computed from."""
        if new is old or not old.type.is_super(new.type) or has_negative_zero(new):
            return False
        is_result = bool(self._context.path) and old in self._fgraph.outputs
        if is_result and new.type != old.type:
            # The Op around a body relies on the types that the body returns.
            return False
        fresh = self._fresh(new)
        return all(isinstance(part, Constant) for part in fresh if part.owner is None)

    def _fresh(self, new: Variable) -> list[Variable]:
        """Return the variables behind ``new`` that the graph lacks, in topological order."""
        known = self._fgraph.variables

        def before(part: Variable) -> list[Variable]:
            return [] if part.owner is None else [v for v in part.owner.inputs if v not in known]

        return [] if new in known else list(walk_toposort([new], before))

    def _needs(self, variable: Variable, read: Variable) -> bool:
        """Whether computing ``variable`` always computes ``read`` too."""
        known = self._needing.setdefault(read, {read: True})
        first = self._places[read.owner]

        def before(part: Variable) -> Sequence[Variable]:
            node = part.owner
            # An IfElse does not evaluate all of its operands.
            is_end = part in known or node is None or isinstance(node.op, IfElse)
            return () if is_end or self._places.get(node, first) < first else node.inputs

        found: dict[Variable, bool] = {}
        for part in walk_toposort([variable], before):
            found[part] = known.get(part, False) or any(found[v] for v in before(part))
        # What is at the place of the walk may still be rewritten.
        known.update((v, needs) for v, needs in found.items() if self._place_of(v) < self._place)
        return found[variable]

    def _place_of(self, variable: Variable) -> int:
        return self._places.get(variable.owner, self._place)
