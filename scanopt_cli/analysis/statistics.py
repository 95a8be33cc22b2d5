"""Counts the loops of a graph, their slots, the nodes, and the sizes of loop buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields

from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.scan_view import ScanView, is_loop, view_of
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind, SlotView
from scanopt_cli.presentation import Presented


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Statistics(Presented):
    """Counts over a graph and all its inner graphs, each occurrence of a body counted.

    ``outer_nodes`` are the nodes of the graph itself, ``inner_nodes`` those of all inner graphs.
    ``buffers`` is the number of elements in the loop buffers, ``buffer_bytes`` the memory that they
    take, as formulas in the trip counts; the buffers of nested loops count once, not once for each
    step of the loop around them. ``loops`` are TracedLoops; their slots are ``states``, ``traced``
    values and ``constants``, and their buffers the traces that are read.
    """

    scans: int = 0
    mit_mot: int = 0
    mit_sot: int = 0
    sit_sot: int = 0
    nit_sot: int = 0
    untraced: int = 0
    seqs: int = 0
    non_seqs: int = 0
    loops: int = 0
    states: int = 0
    traced: int = 0
    constants: int = 0
    outer_nodes: int = 0
    inner_nodes: int = 0
    buffers: str = "0"
    buffer_bytes: str = "0"

    @property
    def has_loops(self) -> bool:
        """Whether there is a loop, a Scan or a TracedLoop."""
        return bool(self.scans or self.loops)


COUNTED = {
    SlotKind.MIT_MOT: "mit_mot",
    SlotKind.MIT_SOT: "mit_sot",
    SlotKind.SIT_SOT: "sit_sot",
    SlotKind.NIT_SOT: "nit_sot",
    SlotKind.UNTRACED: "untraced",
    SlotKind.SEQ: "seqs",
    SlotKind.NON_SEQ: "non_seqs",
    SlotKind.STATE: "states",
    SlotKind.TRACED: "traced",
    SlotKind.CONSTANT: "constants",
}
"""The kinds of slots that are counted, and the names of the counts."""
COUNTS = tuple(f.name for f in fields(Statistics) if not f.name.startswith("buffer"))
"""The names of the whole numbers in `Statistics`, in order."""


def statistics(fgraph: AbstractFunctionGraph) -> Statistics:
    """Count the contents of ``fgraph``; linear in its nodes, each distinct body walked once."""
    counts, sizes = _Counter().count(fgraph)
    return Statistics(**counts, buffers=str(sizes.elements), buffer_bytes=str(sizes.bytes))


def buffer_formula(fgraph: AbstractFunctionGraph) -> Formula:
    """Return the memory that the loop buffers of ``fgraph`` take, in bytes."""
    return _Counter().count(fgraph)[1].bytes


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How large buffers are."""

    elements: Formula = field(default_factory=Formula)
    bytes: Formula = field(default_factory=Formula)

    @classmethod
    def total(cls, parts: Sequence[_Sizes]) -> _Sizes:
        """Return the sum of ``parts``, in time linear in their terms."""
        return cls(
            Formula.total(part.elements for part in parts),
            Formula.total(part.bytes for part in parts),
        )

    def around(self, outer: BodyLengths) -> _Sizes:
        """Return sizes in the body of a node in what is known around it."""
        return _Sizes(outer.formula_outside(self.elements), outer.formula_outside(self.bytes))


class _Counter:
    """Counts graphs, remembering each inner graph by identity."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[AbstractFunctionGraph, dict[str, int], _Sizes]] = {}

    def count(self, graph: AbstractFunctionGraph) -> tuple[dict[str, int], _Sizes]:
        known = self._known.get(id(graph))
        if known is None:
            known = (graph, *self._count(graph))
            self._known[id(graph)] = known
        return known[1], known[2]

    def _count(self, graph: AbstractFunctionGraph) -> tuple[dict[str, int], _Sizes]:
        counts = dict.fromkeys(COUNTS, 0)
        sizes = []
        counts["outer_nodes"] = len(graph.apply_nodes)
        for node in graph.toposort():
            if is_loop(node):
                view = view_of(node)
                counts["scans" if isinstance(view, ScanView) else "loops"] += 1
                lengths = Lengths(view.n_steps)
                for slot in view.slots:
                    if slot.kind is not SlotKind.INDEX:
                        counts[COUNTED[slot.kind]] += 1
                    if has_buffer(slot, lambda output: bool(graph.clients.get(output))):
                        elements = buffer_elements(view, slot, lengths)
                        sizes.append(_Sizes(elements, elements.scaled(_item_size(slot))))
            for inner in inner_graphs(node.op):
                inner_counts, inner_sizes = self.count(inner)
                if inner_sizes.elements.terms:
                    inner_sizes = inner_sizes.around(BodyLengths(node))
                for name, count in inner_counts.items():
                    counts["inner_nodes" if name == "outer_nodes" else name] += count
                sizes.append(inner_sizes)
        return counts, _Sizes.total(sizes)


def buffer_bytes(view: SlotView, slots: Iterable[Slot], lengths: Lengths | None = None) -> Formula:
    """Return the memory that the buffers of ``slots`` take, in bytes.

    ``lengths`` are those of the loop, if they are at hand.
    """
    lengths = lengths or Lengths(view.n_steps)
    return Formula.total(
        buffer_elements(view, slot, lengths).scaled(size)
        for slot in slots
        if (size := _item_size(slot))
    )


def _item_size(slot: Slot) -> int:
    """Return the bytes of an element in the buffer of ``slot``; 0 if there is no such number."""
    dtype = getattr(getattr(slot.outer_output, "type", None), "numpy_dtype", None)
    return 0 if dtype is None else int(dtype.itemsize)


def has_buffer(slot: Slot, is_read: Callable[[Variable], bool]) -> bool:
    """Whether a buffer is allocated for a slot; for a trace only if somebody reads it."""
    output = slot.outer_output
    if output is not None and slot.kind in (SlotKind.STATE, SlotKind.TRACED):
        return isinstance(output.type, TensorType) and is_read(output)
    return slot.kind in TRACED or slot.kind is SlotKind.MIT_MOT


def buffer_elements(view: SlotView, slot: Slot, lengths: Lengths) -> Formula:
    """Return the elements in the buffer of ``slot``: its rows times the elements of a row."""
    assert slot.outer_output is not None
    # `rows` gives the length of the axis of rows; the other axes are those of the batch and of one
    # row. A nit_sot has no buffer before the loop runs, so the shape of its row is that of the
    # body's output.
    if slot.kind in (SlotKind.NIT_SOT, SlotKind.TRACED):
        source, (step,) = slot.outer_output, slot.inner_outputs
        row = [(step, axis) for axis in range(getattr(step.type, "ndim", 0))]
    else:
        source = slot.outer_input
        first = 0 if slot.kind is SlotKind.STATE else view.batch_ndim + 1
        row = [(source, axis) for axis in range(first, getattr(source.type, "ndim", 0))]
    batch = [(source, axis) for axis in range(view.batch_ndim)]
    factors = [lengths.length_of(variable, axis) for variable, axis in (*batch, *row)]
    return Formula.of(rows(view, slot, lengths)).times(factors)
