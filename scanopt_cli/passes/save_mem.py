"""Keep only the steps of a loop that somebody reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.basic import Alloc, AllocEmpty
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.passes.base import ScanPass, Site
from scanopt_cli.scans.buffers import is_whole, rows
from scanopt_cli.scans.counts import scalar_steps
from scanopt_cli.scans.lengths import Lengths, Linear, with_start
from scanopt_cli.scans.reads import Read, reads
from scanopt_cli.scans.view import TRACED, ScanView, Slot, SlotKind


@dataclass(frozen=True)
class SaveMem(ScanPass):
    """Run fewer steps and keep shorter buffers where only some rows of a loop's results are read.

    Legal cases, for a loop of ``n`` steps and a state whose taps reach ``L`` rows back:

    1. Every reader of a mit_sot, sit_sot or nit_sot looks at its last ``k`` steps at most
       (``xs[-1]``, ``xs[-3:]``, ``xs[-1:-4:-1]``): the buffer keeps ``L + min(k, n)`` rows.
    2. Nobody outside reads a state that the loop needs: the buffer keeps ``L`` rows, or ``L + 1``.
    3. Every reader of every output looks at the first ``k`` steps (``xs[2]``, ``xs[:5]``): the loop
       runs ``min(k, n)`` steps. A while loop may stop before.

    Preconditions: the buffer is shown to hold the start and every step. In a while loop a buffer
    keeps one step at most: a longer one PyTensor cuts in the wrong place when the loop stops before
    the buffer is full. For case 3 there is no mit_mot, and nobody reads an untraced state. Readers
    keep their indices and raise in the same cases as before: ``xs[-1]`` of no steps is still an
    error. So is a sequence that is too short: case 3 wants every sequence shown to be long enough.
    What is lost is an error that a step raises which is no longer run.

    With ``prealloc``, the default, a state keeps at least one row more than its taps reach, which
    PyTensor's virtual machines need: they write a step's result in place while other parts of the
    step still read. Without it that row is saved too, and the graph is right only where nothing is
    written in place: with Numba, JAX, or the flag ``scan__allow_output_prealloc=False``.

    Trimmed loops must not be differentiated: `scanopt grad` refuses them. Run this pass last.

    Out of scope: mit_mots, readers in the middle or with a step from the start (``xs[::2]``),
    reversed readers (``xs[::-1][:3]``), reductions, symbolic indices, and case 3 in batched loops.
    """

    prealloc: bool = True

    name: ClassVar[str] = "save-mem"
    trims: ClassVar[bool] = True

    def rewrite(self, view: ScanView, site: Site) -> dict[Variable, Variable] | None:
        """Return all outputs, on a Scan with fewer steps or shorter buffers."""
        lengths = Lengths(view.n_steps)
        names = site.names(view)
        looks = {
            slot: reads(view, slot, names[slot], site.clients) for slot in view.of_kind(*TRACED)
        }
        head = _steps_read(view, looks, lengths, site)
        if head is not None and site.budget.spend():
            site.changed(view, f"runs {head} steps at most: no more are read")
            return _with_steps(view, head, lengths)
        keeps = {
            slot: keep
            for slot, found in looks.items()
            if (keep := self._keep(view, slot, names[slot], found, lengths, site)) is not None
        }
        if not keeps or not site.budget.spend():
            return None
        for slot, keep in keeps.items():
            why = (
                ", ".join(dict.fromkeys(read.text for read in looks[slot])) or "its own taps alone"
            )
            site.changed(view, f"`{names[slot]}` keeps {slot.reach + keep} rows: read as {why}")
            _shorten(view, slot, keep, lengths)
        return view.rebuild()

    def _keep(
        self,
        view: ScanView,
        slot: Slot,
        name: str,
        found: list[Read],
        lengths: Lengths,
        site: Site,
    ) -> int | None:
        """How many steps the buffer of ``slot`` needs to keep, ``None`` to leave it alone."""
        if not is_whole(view, slot, lengths):
            return None
        wide = next((read for read in found if read.tail is None), None)
        if wide is not None:
            steps = lengths.value_of(view.n_steps)
            site.kept(view, f"all {steps} steps of `{name}`: read as {wide.text}")
            return None
        if slot.kind is SlotKind.NIT_SOT and not found:
            return None
        keep = max((read.tail for read in found if read.tail is not None), default=0)
        if self.prealloc and slot.kind is not SlotKind.NIT_SOT:
            keep = max(keep, 1)
        if lengths.at_most(lengths.value_of(view.n_steps), Linear(keep)):
            return None
        if view.is_while and keep > 1:
            site.kept(view, f"all steps of `{name}`: a while loop can keep one step, not {keep}")
            return None
        if scalar_steps(view) is None:
            site.kept(view, f"all steps of `{name}`: the step count differs within the batch")
            return None
        return keep


def _steps_read(
    view: ScanView, looks: dict[Slot, list[Read]], lengths: Lengths, site: Site
) -> int | None:
    """How many first steps all readers together look at, if that may be fewer than all."""
    if view.batch_ndim or view.of_kind(SlotKind.MIT_MOT):
        return None
    if any(site.clients(slot.outer_output) for slot in view.of_kind(SlotKind.UNTRACED)):
        return None
    every = [read for found in looks.values() for read in found]
    if not every or any(read.head is None for read in every):
        return None
    if not all(is_whole(view, slot, lengths) for slot in looks):
        return None
    # No steps at all would be another case: an error for a negative step count, other shapes.
    head = max(1, *(read.head for read in every if read.head is not None))
    steps = lengths.value_of(view.n_steps)
    for slot in view.of_kind(SlotKind.SEQ):
        if not lengths.at_most(steps, rows(view, slot, lengths)):
            site.kept(view, f"all {steps} steps: one of its sequences may be too short for them")
            return None
    return None if lengths.at_most(steps, Linear(head)) else head


def _with_steps(view: ScanView, head: int, lengths: Lengths) -> dict[Variable, Variable]:
    """Rebuild ``view`` to run ``min(head, n)`` steps, with buffers for as many."""
    view.thaw()
    steps = _capped(head, view.n_steps, lengths)
    for slot in view.of_kind(*TRACED):
        _shorten(view, slot, head, lengths, steps)
    view.n_steps = steps
    return view.rebuild()


def _shorten(
    view: ScanView, slot: Slot, keep: int, lengths: Lengths, steps: Variable | None = None
) -> None:
    """Give ``slot`` a buffer for its start and ``min(keep, n)`` steps."""
    if slot.kind is SlotKind.NIT_SOT:
        slot.outer_input = _capped(keep, slot.outer_input, lengths) if steps is None else steps
        return
    scalar = scalar_steps(view)
    assert scalar is not None
    kept = _capped(keep, scalar, lengths) if steps is None else steps
    slot.outer_input = _shorter_buffer(slot.outer_input, slot.reach, kept, view.batch_ndim, lengths)


def _shorter_buffer(buffer: Any, reach: int, steps: Any, batch_ndim: int, lengths: Lengths) -> Any:
    """``buffer`` with ``steps`` rows behind its start: made shorter, or cut where it was not."""
    node = buffer.owner
    if node is not None and isinstance(node.op, IncSubtensor) and node.op.set_instead_of_inc:
        empty, start, *bounds = node.inputs
        is_start = node.op.idx_list == (slice(None, 0),) and len(bounds) == 1
        if is_start and empty.owner is not None and isinstance(empty.owner.op, AllocEmpty):
            known = lengths.value_of(bounds[0])
            if with_start(known, reach) == Linear(reach):
                start_rows: Any = reach if known.is_constant else pt.tensor_from_scalar(bounds[0])
                shorter = _with_length(empty.owner, 0, _sum(start_rows, steps))
                return node.op(shorter, start, *bounds)
    if node is not None and isinstance(node.op, Alloc):
        # Every row is the value, if the value does not reach up to the axis of the rows.
        value = node.inputs[0]
        if value.type.ndim < buffer.type.ndim - batch_ndim:
            return _with_length(node, 1 + batch_ndim, _sum(reach, steps), axis=batch_ndim)
    return buffer[(slice(None),) * batch_ndim + (slice(None, _sum(reach, steps)),)]


def _with_length(node: Apply, position: int, rows: Any, axis: int = 0) -> Variable:
    """Apply an Alloc or AllocEmpty with ``rows`` for the length that is its input ``position``.

    The type is known from the old one. Making the node anew would infer it again from everything
    that the other lengths depend on, which costs a walk over the graph for each loop.
    """
    inputs = list(node.inputs)
    inputs[position] = rows
    old = node.outputs[0].type
    shape = list(old.shape)
    shape[axis] = int(rows.data) if isinstance(rows, Constant) else None
    made: Apply = Apply(node.op, inputs, [old.clone(shape=tuple(shape))()])
    return made.outputs[0]


def _sum(rows: Any, steps: Any) -> Any:
    """``rows + steps``, as a constant if both are known."""
    if isinstance(rows, int) and isinstance(steps, Constant):
        return pt.constant(rows + int(steps.data), dtype="int64")
    return rows + steps


def _capped(most: int, steps: Variable, lengths: Lengths) -> Any:
    """``min(most, steps)``, as a constant where it is shown to be one."""
    if lengths.at_most(Linear(most), lengths.value_of(steps)):
        return pt.constant(most, dtype="int64")
    return pt.minimum(pt.constant(most, dtype="int64"), steps)
