"""ScanView: the one place that knows Scan's positional bookkeeping.

A ``Scan`` node keeps four parallel positional lists (outer inputs, inner inputs, inner outputs and
outer outputs), each split into categories in an order of its own. A `ScanView` turns the node into
a list of `Slot` objects: one for each sequence, state, traced output and non-sequence, with all its
inner and outer variables. A pass reads and edits slots; `ScanView.rebuild` makes the new node.

A ``Blockwise{Scan}``, which `vectorize_graph` makes, is viewed as the Scan that it applies; outer
variables then have ``batch_ndim`` leading batch dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.utils import safe_signature

from scanopt_cli.errors import PassError
from scanopt_cli.ir.former_scans import FormerScan
from scanopt_cli.ir.inner_graphs import core_op, derives
from scanopt_cli.ir.interning import check_kept
from scanopt_cli.ir.slots import (
    STATES,
    HasSlots,
    InnerSlot,
    Slot,
    SlotKind,
    SlotView,
    with_arguments,
)

# The four orders in which Scan lists its categories (``ScanInfo`` and ``Scan.__init__`` upstream).
_OUTER_INPUTS = (
    SlotKind.SEQ,
    SlotKind.MIT_MOT,
    SlotKind.MIT_SOT,
    SlotKind.SIT_SOT,
    SlotKind.UNTRACED,
    SlotKind.NIT_SOT,
    SlotKind.NON_SEQ,
)
_INNER_INPUTS = (
    SlotKind.SEQ,
    SlotKind.MIT_MOT,
    SlotKind.MIT_SOT,
    SlotKind.SIT_SOT,
    SlotKind.UNTRACED,
    SlotKind.NON_SEQ,
)
_OUTPUTS = (
    SlotKind.MIT_MOT,
    SlotKind.MIT_SOT,
    SlotKind.SIT_SOT,
    SlotKind.NIT_SOT,
    SlotKind.UNTRACED,
)


@dataclass(slots=True, eq=False)
class ScanView(SlotView):
    """A Scan node as slots; make one with `ScanView.of`."""

    invariant_kind: ClassVar[SlotKind] = SlotKind.NON_SEQ

    op: Scan

    @classmethod
    def of(cls, node: Apply) -> ScanView:
        """View ``node``, which `scan_op` recognises."""
        op = scan_op(node)
        if op is None:
            raise PassError(f"{node.op} is not a Scan")
        outer_inputs, outer_outputs = node.inputs[1:], iter(node.outputs)
        slots = [Slot.of(*pair) for pair in zip(inner_slots(op), outer_inputs, strict=True)]
        for slot in _in_order(_by_kind(slots), _OUTPUTS):
            slot.outer_output = next(outer_outputs)
        return cls(
            node=node,
            op=op,
            n_steps=node.inputs[0],
            slots=slots,
            condition=inner_condition(op),
            batch_ndim=batch_ndim(node),
        )

    @classmethod
    def of_outputs(cls, node: Apply, *places: int) -> ScanView:
        """View only the slots of the outputs at ``places``, without their inner variables.

        That is enough to ask for lengths, and takes time that does not grow with the loop. The view
        cannot be rebuilt.
        """
        op = scan_op(node)
        assert op is not None
        return cls(
            node=node,
            op=op,
            n_steps=node.inputs[0],
            slots=[_outer_slot(node, op.info, place) for place in places],
            condition=inner_condition(op),
            batch_ndim=batch_ndim(node),
        )

    def outputs(self) -> list[Slot]:
        """Return the slots that have an output, in the node's order."""
        return list(_in_order(_by_kind(self.slots), _OUTPUTS))

    def rebuild(self) -> dict[Variable, Variable]:
        """Apply a new Scan made of the current slots; see `SlotView.rebuild`."""
        by_kind = _by_kind(self.slots)
        outer_inputs = [s.outer_input for s in _in_order(by_kind, _OUTER_INPUTS)]
        op = self._new_op(by_kind) if self.is_unfrozen else self.op
        op = self.kept(op, _in_order(by_kind, _OUTER_INPUTS))
        new_node = apply_scan(op, [self.n_steps, *outer_inputs], self.node, self.batch_ndim)
        return {
            slot.outer_output: new
            for slot, new in zip(self.outputs(), new_node.outputs, strict=True)
            if slot.outer_output is not None
        }

    def _new_op(self, by_kind: Mapping[SlotKind, list[Slot]]) -> Scan:
        return _scan_of(
            by_kind,
            self.condition,
            self.name,
            mode=self.op.mode,
            truncate_gradient=self.op.truncate_gradient,
            name=self.op.name if self.new_name is None else self.new_name,
            profile=self.op.profile,
            allow_gc=self.op.allow_gc,
            strict=self.op.strict,
        )


def new_scan(
    like: SlotView, slots: Sequence[Slot], condition: Variable | None
) -> dict[Slot, Variable]:
    """Return the outputs of a Scan made of ``slots``, whose inner variables are not frozen.

    It has the steps and the name of ``like``, a loop of another design, and the settings of the
    Scan that this was made of, if it was.
    """
    by_kind, name, n_steps = _by_kind(list(slots)), like.op.name, like.n_steps
    settings: dict[str, Any] = {}
    if like.op.former is not None:
        settings = FormerScan(*like.op.former)._asdict()
        del settings["kinds"]
    made = _scan_of(by_kind, condition, str(name), name=name, mode=like.op.mode, **settings)
    op = like.kept(made, _in_order(by_kind, _OUTER_INPUTS))
    node = op.make_node(n_steps, *(s.outer_input for s in _in_order(by_kind, _OUTER_INPUTS)))
    return dict(zip(_in_order(by_kind, _OUTPUTS), node.outputs, strict=True))


def _scan_of(
    by_kind: Mapping[SlotKind, list[Slot]],
    condition: Variable | None,
    called: str,
    **settings: Any,
) -> Scan:
    """Return a new Scan, whose body kept its constants and Ops; an error calls it ``called``."""
    inner_inputs = [v for s in _in_order(by_kind, _INNER_INPUTS) for v in s.inner_inputs]
    inner_outputs = [v for s in _in_order(by_kind, _OUTPUTS) for v in s.inner_outputs]
    if condition is not None:
        inner_outputs.append(condition)
    info = _info(by_kind, as_while=condition is not None)
    op = Scan(inner_inputs, inner_outputs, info, **settings)
    check_kept(inner_outputs, op.fgraph, called)
    return op


def loop_op(node: Apply) -> Any:
    """Return the loop that a node applies, directly or through Blockwise; ``None`` if none."""
    return node.op if isinstance(node.op, HasSlots) else scan_op(node)


def inner_slots(op: Any) -> list[InnerSlot]:
    """Return the slots of a loop without a node, in the order of `SlotView.slots`."""
    return op.inner_slots() if isinstance(op, HasSlots) else _scan_slots(op)


def _scan_slots(op: Scan) -> list[InnerSlot]:
    counts = _counts(op.info)
    slots = [
        InnerSlot(kind, position, *_taps(op.info, kind, position))
        for kind in _OUTER_INPUTS
        for position in range(counts[kind])
    ]
    by_kind = _by_kind(slots)
    inner_inputs, inner_outputs = iter(op.fgraph.inputs), iter(op.fgraph.outputs)
    for slot in _in_order(by_kind, _INNER_INPUTS):
        width = len(slot.taps) if slot.kind in STATES else 1
        slot.inner_inputs = [next(inner_inputs) for _ in range(width)]
    for slot in _in_order(by_kind, _OUTPUTS):
        slot.inner_outputs = [next(inner_outputs) for _ in slot.out_taps]
    return with_arguments(slots, op)


def _outer_slot(node: Apply, info: ScanInfo, place: int) -> Slot:
    """Return the slot of one output of a Scan node, without its inner variables."""
    counts = _counts(info)
    position = place
    for kind in _OUTPUTS:
        if position < counts[kind]:
            break
        position -= counts[kind]
    before = _OUTER_INPUTS[: _OUTER_INPUTS.index(kind)]
    outer_input = node.inputs[1 + sum(counts[other] for other in before) + position]
    in_taps, out_taps = _taps(info, kind, position)
    inner = InnerSlot(kind, position, in_taps, out_taps)
    slot = Slot.of(inner, outer_input)
    slot.outer_output = node.outputs[place]
    return slot


def first_traced(node: Apply) -> int:
    """Return the place of the first output that holds a row of each step, mit_mots aside."""
    op = scan_op(node)
    assert op is not None
    return _counts(op.info)[SlotKind.MIT_MOT]


def inner_condition(op: Any) -> Variable | None:
    """Return the condition of a loop: that to stop of a Scan, that to go on of a TracedLoop."""
    if isinstance(op, HasSlots):
        return op.inner_condition
    return op.fgraph.outputs[-1] if op.info.as_while else None


def scan_op(node: Apply) -> Scan | None:
    """Return the Scan that ``node`` applies, directly or through Blockwise; ``None`` if none."""
    op = core_op(node.op)
    return cast("Scan", op) if derives(type(op), Scan) else None


def is_loop(node: Apply) -> bool:
    """Whether a node applies a loop of either design, a Scan or a TracedLoop."""
    op: Op = node.op
    return derives(type(op), HasSlots) or scan_op(node) is not None


def view_of(node: Apply) -> SlotView:
    """Return the slots of a loop of either design."""
    return node.op.view(node) if isinstance(node.op, HasSlots) else ScanView.of(node)


def batch_ndim(node: Apply) -> int:
    """The number of leading batch dimensions of a Scan node: 0 unless it is a Blockwise."""
    return int(node.op.batch_ndim(node)) if isinstance(node.op, Blockwise) else 0


def apply_scan(op: Scan, inputs: list[Variable], like: Apply, batch_ndim: int) -> Apply:
    """Apply ``op`` as ``like`` applies its own Scan: directly, or through a Blockwise."""
    if not isinstance(like.op, Blockwise):
        node: Apply = op.make_node(*inputs)
        return node
    signature = _signature(op, inputs, batch_ndim)
    wrapped: Apply = Blockwise(op, signature=signature, name=like.op.name).make_node(*inputs)
    return wrapped


def may_be_preallocated(info: ScanInfo) -> list[bool]:
    """Return for each inner output of a mit_mot, whether it overwrites a row that the step reads.

    Only such a row can be given to the step as the place to write the output to.
    """
    taps = zip(info.mit_mot_in_slices, info.mit_mot_out_slices, strict=True)
    return [written in read for read, outs in taps for written in outs]


def scan_signature(node: Apply) -> str:
    """Return the signature that the Scan of a Blockwise node has: every dimension is its own."""
    op = scan_op(node)
    assert op is not None
    return _signature(op, node.inputs, batch_ndim(node))


def _signature(op: Scan, inputs: Sequence[Variable], batch_ndim: int) -> str:
    core = [variable.type.ndim - batch_ndim for variable in inputs]
    signature: str = safe_signature(core, [output_type.ndim for output_type in op.output_types])
    return signature


def _counts(info: ScanInfo) -> dict[SlotKind, int]:
    """How many slots there are of each kind."""
    return {
        SlotKind.SEQ: info.n_seqs,
        SlotKind.MIT_MOT: len(info.mit_mot_in_slices),
        SlotKind.MIT_SOT: len(info.mit_sot_in_slices),
        SlotKind.SIT_SOT: len(info.sit_sot_in_slices),
        SlotKind.UNTRACED: info.n_untraced_sit_sot,
        SlotKind.NIT_SOT: info.n_nit_sot,
        SlotKind.NON_SEQ: info.n_non_seqs,
    }


def _taps(info: ScanInfo, kind: SlotKind, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """In-taps and out-taps of a slot; inputs that are no state have no taps."""
    now = (0,)
    match kind:
        case SlotKind.MIT_MOT:
            return info.mit_mot_in_slices[position], info.mit_mot_out_slices[position]
        case SlotKind.MIT_SOT:
            return info.mit_sot_in_slices[position], now
        case SlotKind.SIT_SOT:
            return info.sit_sot_in_slices[position], now
        case SlotKind.UNTRACED:
            return (-1,), now
        case SlotKind.NIT_SOT:
            return (), now
    return (), ()


def _info(by_kind: Mapping[SlotKind, list[Slot]], *, as_while: bool) -> ScanInfo:
    return ScanInfo(
        n_seqs=len(by_kind[SlotKind.SEQ]),
        mit_mot_in_slices=tuple(slot.taps for slot in by_kind[SlotKind.MIT_MOT]),
        mit_mot_out_slices=tuple(slot.out_taps for slot in by_kind[SlotKind.MIT_MOT]),
        mit_sot_in_slices=tuple(slot.taps for slot in by_kind[SlotKind.MIT_SOT]),
        sit_sot_in_slices=tuple(slot.taps for slot in by_kind[SlotKind.SIT_SOT]),
        n_nit_sot=len(by_kind[SlotKind.NIT_SOT]),
        n_untraced_sit_sot=len(by_kind[SlotKind.UNTRACED]),
        n_non_seqs=len(by_kind[SlotKind.NON_SEQ]),
        as_while=as_while,
    )


def _by_kind[S: InnerSlot](slots: list[S]) -> dict[SlotKind, list[S]]:
    by_kind: dict[SlotKind, list[S]] = {kind: [] for kind in SlotKind}
    for slot in slots:
        by_kind[slot.kind].append(slot)
    return by_kind


def _in_order[S: InnerSlot](
    by_kind: Mapping[SlotKind, list[S]], order: tuple[SlotKind, ...]
) -> Iterator[S]:
    for kind in order:
        yield from by_kind[kind]
