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
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pytensor.graph.basic import Apply, Variable
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.utils import safe_signature

from scanopt_cli.errors import PassError
from scanopt_cli.ir.interning import check_kept


class SlotKind(StrEnum):
    """The category of a slot."""

    SEQ = "seq"
    MIT_MOT = "mit_mot"
    MIT_SOT = "mit_sot"
    SIT_SOT = "sit_sot"
    UNTRACED = "untraced"
    NIT_SOT = "nit_sot"
    NON_SEQ = "non_seq"


STATES = frozenset({SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.UNTRACED})
TRACED = frozenset({SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.NIT_SOT})

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
class InnerSlot:
    """The inner part of a slot; see `Slot`."""

    kind: SlotKind
    position: int
    taps: tuple[int, ...] = ()
    out_taps: tuple[int, ...] = ()
    inner_inputs: list[Variable] = field(default_factory=list)
    inner_outputs: list[Variable] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Slot(InnerSlot):
    """One sequence, state, traced output or non-sequence of a Scan, with all its variables.

    Attributes
    ----------
    kind
        The category.
    position
        The position within its category in the viewed node; used for names only.
    taps
        Steps back (negative) at which a state is read; empty for all other kinds.
    out_taps
        The taps at which a step writes: ``(0,)`` except for a mit_mot.
    inner_inputs
        The inner inputs, one for each tap.
    inner_outputs
        The inner outputs, one for each out-tap.
    outer_input
        The sequence, the initial buffer of a state, the buffer length of a nit_sot, the value of a
        non-sequence.
    outer_output
        The node's output, ``None`` for sequences and non-sequences.
    """

    outer_input: Variable = field(kw_only=True)
    outer_output: Variable | None = None

    @property
    def n_initial(self) -> int:
        """The number of initial rows in the buffer of a mit_sot or sit_sot; else 0."""
        if self.kind in (SlotKind.MIT_SOT, SlotKind.SIT_SOT):
            return -min(self.taps)
        return 0

    @property
    def label(self) -> str:
        """A stable name within the Scan: the kind and the place in its category."""
        return f"{self.kind}[{self.position}]"


@dataclass(slots=True, eq=False)
class ScanView:
    """A Scan node as slots.

    Make one with `ScanView.of`, replace outer inputs, and call `rebuild`. Inner variables belong to
    the frozen body: before editing them, or adding or removing slots, `unfreeze` the view.
    """

    node: Apply
    op: Scan
    n_steps: Variable
    slots: list[Slot]
    condition: Variable | None
    batch_ndim: int = 0
    is_unfrozen: bool = False
    new_name: str | None = None

    @classmethod
    def of(cls, node: Apply) -> ScanView:
        """View ``node``, which `scan_op` recognises."""
        op = scan_op(node)
        if op is None:
            raise PassError(f"{node.op} is not a Scan")
        inner = inner_slots(op)
        outer_inputs, outer_outputs = iter(node.inputs[1:]), iter(node.outputs)
        slots = [
            Slot(
                slot.kind,
                slot.position,
                slot.taps,
                slot.out_taps,
                slot.inner_inputs,
                slot.inner_outputs,
                outer_input=next(outer_inputs),
            )
            for slot in inner
        ]
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
    def joined(cls, views: Sequence[ScanView], name: str) -> ScanView:
        """Return one view with the slots of all ``views``, unfrozen; ``name`` is the new Scan's.

        All else is taken from the first: the step count, the stop condition and the settings.
        """
        for view in views:
            view.unfreeze()
        slots = [slot for view in views for slot in view.slots]
        return replace(views[0], slots=slots, new_name=name)

    @property
    def name(self) -> str:
        """The Scan's own name."""
        return str(self.op.name)

    @property
    def is_while(self) -> bool:
        """Whether the loop has a stop condition."""
        return self.condition is not None

    def of_kind(self, *kinds: SlotKind) -> list[Slot]:
        """Return the slots of ``kinds``, in order."""
        return [slot for slot in self.slots if slot.kind in kinds]

    def outputs(self) -> list[Slot]:
        """Return the slots that have an output, in the node's order."""
        return list(_in_order(_by_kind(self.slots), _OUTPUTS))

    def inner_outputs(self) -> list[Variable]:
        """The inner outputs in the Scan's order, the stop condition last."""
        computed = [variable for slot in self.outputs() for variable in slot.inner_outputs]
        return computed if self.condition is None else [*computed, self.condition]

    def set_inner_outputs(self, variables: list[Variable]) -> None:
        """Make a step compute ``variables``, in the order of `inner_outputs`."""
        computed = iter(variables)
        for slot in self.outputs():
            slot.inner_outputs = [next(computed) for _ in slot.inner_outputs]
        if self.condition is not None:
            self.condition = next(computed)

    def unfreeze(self, substitute: Mapping[Variable, Variable] | None = None) -> None:
        """Replace the frozen inner variables by fresh, mutable ones.

        ``substitute`` maps inner inputs to what the body shall read in their place: another inner
        input of this view, or a constant. A substituted input keeps its slot, but has no reader.
        """
        self.is_unfrozen = True
        body = self.op.fgraph
        fresh = {variable: variable.type() for variable in body.inputs}
        replaced = {
            variable: fresh.get(replacement, replacement)
            for variable, replacement in (substitute or {}).items()
        }
        outputs = body.bind({**fresh, **replaced})
        unfrozen = dict(zip(body.outputs, outputs, strict=True))
        for slot in self.slots:
            slot.inner_inputs = [fresh[variable] for variable in slot.inner_inputs]
            slot.inner_outputs = [unfrozen[variable] for variable in slot.inner_outputs]
        if self.condition is not None:
            self.condition = unfrozen[self.condition]

    def rebuild(self) -> dict[Variable, Variable]:
        """Apply a new Scan made of the current slots.

        Returns a map from the old outer outputs of the remaining slots to the new ones. Outputs of
        removed slots have no entry.
        """
        by_kind = _by_kind(self.slots)
        outer_inputs = [s.outer_input for s in _in_order(by_kind, _OUTER_INPUTS)]
        op = self._new_op(by_kind) if self.is_unfrozen else self.op
        new_node = apply_scan(op, [self.n_steps, *outer_inputs], self.node, self.batch_ndim)
        return {
            slot.outer_output: new
            for slot, new in zip(self.outputs(), new_node.outputs, strict=True)
            if slot.outer_output is not None
        }

    def _new_op(self, by_kind: Mapping[SlotKind, list[Slot]]) -> Scan:
        inner_inputs = [v for s in _in_order(by_kind, _INNER_INPUTS) for v in s.inner_inputs]
        op = Scan(
            inner_inputs,
            self.inner_outputs(),
            _info(by_kind, as_while=self.is_while),
            mode=self.op.mode,
            truncate_gradient=self.op.truncate_gradient,
            name=self.op.name if self.new_name is None else self.new_name,
            profile=self.op.profile,
            allow_gc=self.op.allow_gc,
            strict=self.op.strict,
        )
        check_kept(self.inner_outputs(), op.fgraph, self.name)
        return op


def inner_slots(op: Scan) -> list[InnerSlot]:
    """Return the slots of a Scan Op without a node, in the order of `ScanView.slots`."""
    taps = _taps(op.info)
    slots = [
        InnerSlot(kind, position, *both)
        for kind in _OUTER_INPUTS
        for position, both in enumerate(taps[kind])
    ]
    by_kind = _by_kind(slots)
    inner_inputs, inner_outputs = iter(op.fgraph.inputs), iter(op.fgraph.outputs)
    for slot in _in_order(by_kind, _INNER_INPUTS):
        width = len(slot.taps) if slot.kind in STATES else 1
        slot.inner_inputs = [next(inner_inputs) for _ in range(width)]
    for slot in _in_order(by_kind, _OUTPUTS):
        slot.inner_outputs = [next(inner_outputs) for _ in slot.out_taps]
    return slots


def inner_condition(op: Scan) -> Variable | None:
    """Return the stop condition of a while-loop, ``None`` for other loops."""
    return op.fgraph.outputs[-1] if op.info.as_while else None


def scan_op(node: Apply) -> Scan | None:
    """Return the Scan that ``node`` applies, directly or through Blockwise; ``None`` if none."""
    op = node.op
    if isinstance(op, Blockwise):
        op = op.core_op
    return op if isinstance(op, Scan) else None


def batch_ndim(node: Apply) -> int:
    """The number of leading batch dimensions of a Scan node: 0 unless it is a Blockwise."""
    return int(node.op.batch_ndim(node)) if isinstance(node.op, Blockwise) else 0


def apply_scan(op: Scan, inputs: list[Variable], like: Apply, batch_ndim: int) -> Apply:
    """Apply ``op`` as ``like`` applies its own Scan: directly, or through a Blockwise."""
    if not isinstance(like.op, Blockwise):
        node: Apply = op.make_node(*inputs)
        return node
    signature = safe_signature(
        [variable.type.ndim - batch_ndim for variable in inputs],
        [output_type.ndim for output_type in op.output_types],
    )
    wrapped: Apply = Blockwise(op, signature=signature, name=like.op.name).make_node(*inputs)
    return wrapped


def _taps(info: ScanInfo) -> dict[SlotKind, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """In-taps and out-taps of every slot, by kind; inputs that are no state have no taps."""
    now = (0,)
    return {
        SlotKind.SEQ: [((), ())] * info.n_seqs,
        SlotKind.MIT_MOT: list(zip(info.mit_mot_in_slices, info.mit_mot_out_slices, strict=True)),
        SlotKind.MIT_SOT: [(taps, now) for taps in info.mit_sot_in_slices],
        SlotKind.SIT_SOT: [(taps, now) for taps in info.sit_sot_in_slices],
        SlotKind.UNTRACED: [((-1,), now)] * info.n_untraced_sit_sot,
        SlotKind.NIT_SOT: [((), now)] * info.n_nit_sot,
        SlotKind.NON_SEQ: [((), ())] * info.n_non_seqs,
    }


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
    return {kind: [slot for slot in slots if slot.kind is kind] for kind in SlotKind}


def _in_order[S: InnerSlot](
    by_kind: Mapping[SlotKind, list[S]], order: tuple[SlotKind, ...]
) -> Iterator[S]:
    for kind in order:
        yield from by_kind[kind]
