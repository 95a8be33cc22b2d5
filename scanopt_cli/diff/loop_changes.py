"""What changed about one loop: its slots, its steps and its options."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import rows
from scanopt_cli.diff.changes import Change, Subject
from scanopt_cli.diff.labels import length_text, op_text, slot_subject
from scanopt_cli.diff.matching.correspondence import Matching, NodePair
from scanopt_cli.diff.regions import Edge
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView

# How many nodes back the computation of a length is compared.
_DEPTH = 8
_WITH_ROWS = frozenset({SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.NIT_SOT})


def loop_changes(
    matching: Matching, pair: NodePair, sizes: tuple[dict[Edge, int], dict[Edge, int]]
) -> Iterator[Change]:
    """Yield how two matched Scans differ, except for their bodies and the slots that only one has.

    Edges of either side whose lengths these changes cover are added to ``sizes``, each with the
    axis of its length.
    """
    before, after = matching.before.view(pair.node), matching.after.view(pair.other)
    loop = Subject(op=op_text(matching.before, pair.node))
    yield from _different(
        loop,
        ("stop condition", _yes(before.is_while), _yes(after.is_while)),
        ("gradient truncated after", _truncation(before), _truncation(after)),
        ("works in place on", _in_place(before), _in_place(after)),
        ("batch dimensions", str(before.batch_ndim), str(after.batch_ndim)),
    )
    for first, second in pair.slots or ():
        slot, partner = before.slots[first], after.slots[second]
        yield from _different(
            slot_subject(matching.before, pair.node, first + 1),
            ("kind", str(slot.kind), str(partner.kind)),
            ("taps", _taps(slot.taps), _taps(partner.taps)),
            ("written taps", _taps(slot.out_taps), _taps(partner.out_taps)),
        )
    yield from _size_changes(matching, before, after, sizes)


def _different(subject: Subject, *properties: tuple[str, str, str]) -> Iterator[Change]:
    for aspect, old, new in properties:
        if old != new:
            yield Change.of_property(subject, aspect, old, new)


def _size_changes(
    matching: Matching,
    before: SlotView,
    after: SlotView,
    sizes: tuple[dict[Edge, int], dict[Edge, int]],
) -> Iterator[Change]:
    """Yield changed trip counts and buffer lengths, and record the edges that carry them.

    Lengths that only follow the trip count, such as those of sequences, are not reported again.
    """

    def cover(place: int, other_place: int) -> None:
        sizes[0][before.node, place] = before.batch_ndim
        sizes[1][after.node, other_place] = after.batch_ndim

    lengths, later = Lengths(before.n_steps), Lengths(after.n_steps)
    steps, steps_after = lengths.value_of(before.n_steps), later.value_of(after.n_steps)
    other_steps = not _is_made_alike(matching, before.n_steps, after.n_steps) and _differ(
        matching, steps, steps_after
    )
    if other_steps:
        loop = Subject(op=op_text(matching.before, before.node))
        yield Change.of_property(loop, "steps", *_texts(matching, steps, steps_after))
        cover(0, 0)
    for first, second in matching.pairs[before.node].slots or ():
        slot, slot_after = before.slots[first], after.slots[second]
        if other_steps and slot.kind is SlotKind.SEQ:
            cover(first + 1, second + 1)
        if not (_has_rows(slot) and _has_rows(slot_after)):
            continue
        kept, kept_after = rows(before, slot, lengths), rows(after, slot_after, later)
        if _is_made_alike(matching, slot.outer_input, slot_after.outer_input) or not _differ(
            matching, kept, kept_after
        ):
            continue
        cover(first + 1, second + 1)
        if not other_steps or _differ(matching, kept - steps, kept_after - steps_after):
            subject = slot_subject(matching.before, before.node, first + 1)
            yield Change.of_property(subject, "rows", *_texts(matching, kept, kept_after))


def _is_made_alike(
    matching: Matching, variable: Variable, other: Variable, depth: int = _DEPTH
) -> bool:
    """Whether two variables are computed by the same nodes, from inputs that may have changed.

    If so, the change is reported at these inputs, even if the lengths have different expressions:
    there are many ways to write a length.
    """
    if matching.is_equal(variable, other):
        return True
    if matching.partners.get(variable) is not other:
        return False
    node, maker = variable.owner, other.owner
    if node is None or maker is None or is_loop(node) or not depth:
        return True
    return matching.same_op(node, maker) and all(
        _is_made_alike(matching, *read, depth - 1) for read in matching.pairs[node].inputs_read()
    )


def _differ(matching: Matching, form: AffineExpr, other: AffineExpr) -> bool:
    """Whether two lengths differ, and so do their texts."""

    def partner(atom: Atom) -> Atom:
        other = matching.partners.get(atom.variable)
        # The length of a changed variable changes with it, and is not reported again.
        if other is None or (atom.axis is None and not matching.is_equal(atom.variable, other)):
            return atom
        return Atom(other, atom.axis)

    terms = frozenset((partner(atom), factor) for atom, factor in form.terms)
    if AffineExpr(form.constant, terms) == other:
        return False
    text, retext = _texts(matching, form, other)
    return text != retext


def _texts(matching: Matching, form: AffineExpr, other: AffineExpr) -> tuple[str, str]:
    return length_text(matching.before, form), length_text(matching.after, other)


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
