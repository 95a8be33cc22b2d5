"""What changed about one loop: its slots, its steps and its options."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.scan_lengths import rows
from scanopt_cli.diff.changes import Subject
from scanopt_cli.diff.labels import length_text, op_text, slot_subject
from scanopt_cli.diff.matching.correspondence import Matching
from scanopt_cli.diff.matching.pairing import Pairs
from scanopt_cli.diff.properties import PropertyChange
from scanopt_cli.diff.regions import Edge
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView

# How many nodes back the computation of a length is compared.
_DEPTH = 8
_WITH_ROWS = frozenset({SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.NIT_SOT})


type _Property = tuple[Subject, PropertyChange]


@dataclass(slots=True)
class LoopChange:
    """How a Scan differs from the one that it is matched with.

    Attributes
    ----------
    lost
        For each side, the places in the view's list of the slots that only this side has.
    properties
        The changes of the loop itself and of the slots that it kept.
    sizes
        Edges of either side whose lengths ``properties`` cover, each with the axis of its length.
    """

    lost: tuple[list[int], list[int]]
    properties: list[_Property]
    sizes: tuple[dict[Edge, int], dict[Edge, int]] = field(default_factory=lambda: ({}, {}))

    def note_sizes(self, edges: tuple[Edge, Edge], axes: tuple[int, int]) -> None:
        """Record a pair of edges whose lengths ``properties`` cover."""
        for sizes, edge, axis in zip(self.sizes, edges, axes, strict=True):
            sizes[edge] = axis


def loop_change(matching: Matching, node: Apply, other: Apply) -> LoopChange:
    """Compare two matched Scans, except for their bodies."""
    before, after = matching.first.view(node), matching.second.view(other)
    pairs = matching.alignments[node].slots or ()
    kept = {first for first, _ in pairs}, {second for _, second in pairs}
    loop = Subject(op=op_text(matching.first, node))
    change = LoopChange(
        lost=(
            [place for place in range(len(before.slots)) if place not in kept[0]],
            [place for place in range(len(after.slots)) if place not in kept[1]],
        ),
        properties=_options(loop, before, after),
    )
    for first, second in pairs:
        subject = slot_subject(matching.first, node, first + 1)
        change.properties += _slot(subject, before.slots[first], after.slots[second])
    _compare_sizes(matching, before, after, pairs, change)
    return change


def _options(loop: Subject, before: SlotView, after: SlotView) -> list[_Property]:
    truncated = _truncation(before), _truncation(after)
    texts = (
        ("stop condition", _yes(before.is_while), _yes(after.is_while)),
        ("gradient truncated after", *truncated),
        ("works in place on", _in_place(before), _in_place(after)),
        ("batch dimensions", str(before.batch_ndim), str(after.batch_ndim)),
    )
    return [(loop, PropertyChange(*text)) for text in texts if text[1] != text[2]]


def _slot(subject: Subject, before: Slot, after: Slot) -> list[_Property]:
    texts = (
        ("kind", str(before.kind), str(after.kind)),
        ("taps", _taps(before.taps), _taps(after.taps)),
        ("written taps", _taps(before.out_taps), _taps(after.out_taps)),
    )
    return [(subject, PropertyChange(*text)) for text in texts if text[1] != text[2]]


def _compare_sizes(
    matching: Matching, before: SlotView, after: SlotView, pairs: Pairs, change: LoopChange
) -> None:
    """Report changed trip counts and buffer lengths, and record the edges that carry them.

    Lengths that only follow the trip count, such as those of sequences, are not reported again.
    """
    loop = Subject(op=op_text(matching.first, before.node))
    lengths, later = Lengths(before.n_steps), Lengths(after.n_steps)
    steps, steps_after = lengths.value_of(before.n_steps), later.value_of(after.n_steps)
    axes = before.batch_ndim, after.batch_ndim
    other_steps = not _is_made_alike(matching, before.n_steps, after.n_steps) and _differ(
        matching, steps, steps_after
    )
    if other_steps:
        texts = _texts(matching, steps, steps_after)
        change.properties.append((loop, PropertyChange("steps", *texts)))
        change.note_sizes(((before.node, 0), (after.node, 0)), axes)
    for first, second in pairs:
        edges = (before.node, first + 1), (after.node, second + 1)
        slot, slot_after = before.slots[first], after.slots[second]
        if other_steps and slot.kind is SlotKind.SEQ:
            change.note_sizes(edges, axes)
        if not (_has_rows(slot) and _has_rows(slot_after)):
            continue
        kept, kept_after = rows(before, slot, lengths), rows(after, slot_after, later)
        if _is_made_alike(matching, slot.outer_input, slot_after.outer_input) or not _differ(
            matching, kept, kept_after
        ):
            continue
        change.note_sizes(edges, axes)
        if not other_steps or _differ(matching, kept - steps, kept_after - steps_after):
            subject = slot_subject(matching.first, *edges[0])
            texts = _texts(matching, kept, kept_after)
            change.properties.append((subject, PropertyChange("rows", *texts)))


def _is_made_alike(
    matching: Matching, variable: Variable, other: Variable, depth: int = _DEPTH
) -> bool:
    """Whether two variables are computed by the same nodes, from inputs that may have changed.

    If so, the change is reported at these inputs, even if the lengths have different expressions:
    there are many ways to write a length.
    """
    if matching.is_equal(variable, other):
        return True
    if matching.links.get(variable) is not other:
        return False
    node, maker = variable.owner, other.owner
    if node is None or maker is None or is_loop(node) or not depth:
        return True
    return matching.same_op(node, maker) and all(
        _is_made_alike(matching, node.inputs[place], maker.inputs[counterpart], depth - 1)
        for place, counterpart in matching.alignments[node].inputs
    )


def _differ(matching: Matching, form: AffineExpr, other: AffineExpr) -> bool:
    """Whether two lengths differ, and so do their texts."""

    def counterpart(atom: Atom) -> Atom:
        linked = matching.links.get(atom.variable)
        # The length of a changed variable changes with it, and is not reported again.
        if linked is None or (atom.axis is None and not matching.is_equal(atom.variable, linked)):
            return atom
        return Atom(linked, atom.axis)

    terms = frozenset((counterpart(atom), factor) for atom, factor in form.terms)
    if AffineExpr(form.constant, terms) == other:
        return False
    text, retext = _texts(matching, form, other)
    return text != retext


def _texts(matching: Matching, form: AffineExpr, other: AffineExpr) -> tuple[str, str]:
    return length_text(matching.first, form), length_text(matching.second, other)


def _has_rows(slot: Slot) -> bool:
    return slot.kind in _WITH_ROWS and isinstance(slot.outer_input.type, TensorType)


def _taps(taps: tuple[int, ...]) -> str:
    return ", ".join(map(str, taps)) or "none"


def _truncation(view: SlotView) -> str:
    return str(getattr(view.op, "truncate_gradient", "none"))


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _in_place(view: SlotView) -> str:
    return ", ".join(f"output {place}" for place in sorted(view.op.destroy_map)) or "nothing"
