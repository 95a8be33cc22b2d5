"""Scans as calls of ``pytensor.scan``, where they have the form that it builds.

That cuts each sequence to the taps and the steps, writes the initial rows of a state into a buffer
that is as long as the loop, and returns the buffers without them. Here it is recognised; it need
not be right, since the call is evaluated and compared with the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarMinimum
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.python_source.code import (
    Binding,
    Candidate,
    Code,
    Definition,
    Operand,
    Part,
    Reference,
    code,
    listed,
    quoted,
    text,
)

UNNAMED = "scan_fn"
"""What PyTensor calls a Scan that nobody gave a name."""
_SCAN = Reference("pytensor", "scan")
AFTER_START = (SlotKind.MIT_SOT, SlotKind.SIT_SOT)
"""States whose call returns the buffer without its first rows."""


class _NotOfThatFormError(Exception):
    """A Scan is none that ``pytensor.scan`` builds."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """The rows of ``source`` from ``start`` on, of which the last ``missing`` are left out."""

    source: Variable
    start: int
    missing: int
    backwards: bool

    @property
    def span(self) -> int:
        """How far the first and the last tap of the sequence, or 0, are apart."""
        return self.start + self.missing


def scan_calls(
    node: Apply, step: Callable[[], Definition], titles: Mapping[Variable, str]
) -> Iterator[Candidate]:
    """Yield calls of ``pytensor.scan`` that may make ``node``; ``step`` defines the function.

    ``titles`` says what its outputs are called.

    First is one that leaves the number of steps to the sequences.
    """
    view = ScanView.of(node)
    if view.of_kind(SlotKind.MIT_MOT) or view.batch_ndim:
        return
    try:
        sequences = [_sequence(slot) for slot in view.of_kind(SlotKind.SEQ)]
        options = _options(view, sequences)
    except _NotOfThatFormError:
        return
    made = Operand(view.n_steps)
    for steps in ({}, {"n_steps": made}) if sequences else ({"n_steps": made},):
        yield _call(view, step(), {**options, **steps}, titles)


def taken_by_call(node: Apply) -> list[Variable] | None:
    """Return what a call of ``pytensor.scan`` that makes a Scan would be given.

    The nodes between these and the Scan are made by the call. ``None`` if there is no such call.
    """
    view = ScanView.of(node)
    # A call for one step makes no loop.
    is_one_step = number(view.n_steps) == 1
    if view.of_kind(SlotKind.MIT_MOT) or view.batch_ndim or is_one_step:
        return None
    try:
        sequences = [_sequence(slot) for slot in view.of_kind(SlotKind.SEQ)]
        parts = [_initial(slot) for slot in view.outputs()]
    except _NotOfThatFormError:
        return None
    if not all(_is_as_long(slot, view.n_steps) for slot in view.slots):
        return None
    initial = (operand.variable for part in parts for operand in _read(part))
    constants = (slot.outer_input for slot in view.of_kind(SlotKind.NON_SEQ))
    return [view.n_steps, *(found.source for found in sequences), *initial, *constants]


def _is_as_long(slot: Slot, n_steps: Variable) -> bool:
    """Whether a sequence, or a buffer, is made for so many steps."""
    if slot.kind is SlotKind.SEQ:
        length = _sliced(slot.outer_input).inputs[1]
    elif slot.kind is SlotKind.NIT_SOT:
        length = slot.outer_input
    elif slot.kind in AFTER_START:
        length = _owner(_owner(slot.outer_input, IncSubtensor).inputs[0], AllocEmpty).inputs[0]
    else:
        return True
    steps = number(n_steps)
    behind = list(ancestors([length], blockers=[n_steps]))
    if any(v is not n_steps and _is_minimum(v.owner) for v in behind):
        return False  # It is cut shorter.
    return any(v is n_steps or (steps is not None and number(v) == steps) for v in behind)


def _is_minimum(node: Apply | None) -> bool:
    op = None if node is None else node.op
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, ScalarMinimum)


def _options(view: ScanView, sequences: Sequence[_Sequence]) -> dict[str, Part]:
    options: dict[str, Part] = {}
    backwards = {found.backwards for found in sequences}
    if len(backwards) > 1:
        raise _NotOfThatFormError
    if sequences:
        options["sequences"] = listed(_grouped(sequences))
    outputs = view.outputs()
    if any(slot.kind is not SlotKind.NIT_SOT for slot in outputs):
        options["outputs_info"] = listed([_initial(slot) for slot in outputs])
    constants = view.of_kind(SlotKind.NON_SEQ)
    if constants:
        options["non_sequences"] = listed([_explicit(slot.outer_input) for slot in constants])
    if backwards == {True}:
        options["go_backwards"] = text("True")
    op = view.op
    if op.truncate_gradient != -1:
        options["truncate_gradient"] = text(str(int(op.truncate_gradient)))
    if op.name and op.name != UNNAMED:
        options["name"] = quoted(str(op.name))
    return options


def _call(
    view: ScanView, step: Definition, options: dict[str, Part], titles: Mapping[Variable, str]
) -> Candidate:
    given = {**options, "return_updates": text("False")}
    lines = "".join(f"\n    {name}={{}}," for name in given)
    made = code(f"{{}}(\n    {{}},{lines}\n)", _SCAN, step, *given.values())
    results: list[Variable] = []
    derived: list[tuple[Variable, Code]] = []
    for slot in view.outputs():
        if slot.kind in AFTER_START:
            # What is returned is the buffer without its first rows.
            rows: Variable = slot.output.type(name=titles.get(slot.output, slot.output.name))
            results.append(rows)
            buffer = code("{}.owner.inputs[0]", Operand(rows, Binding.ATOM, bare=False))
            derived.append((slot.output, buffer))
        else:
            results.append(slot.output)
    return Candidate(made, tuple(results), tuple(derived))


def _explicit(variable: Variable) -> Operand:
    return Operand(variable, bare=False)


def _sequence(slot: Slot) -> _Sequence:
    """Return what a sequence is cut of: ``x[start:end][:n_steps]``."""
    cut = _sliced(slot.outer_input)
    rows = _owner(cut.inputs[0], Subtensor)
    backwards = False
    if _steps_backwards(rows):
        backwards = True
        rows = _owner(rows.inputs[0], Subtensor)
    if len(indices := indices_of(rows)) != 1 or not isinstance(indices[0], slice):
        raise _NotOfThatFormError
    start, end = number(indices[0].start, missing=0), number(indices[0].stop, missing=0)
    if start is None or end is None or start < 0 or end > 0 or indices[0].step is not None:
        raise _NotOfThatFormError
    return _Sequence(rows.inputs[0], start, -end, backwards)


def _steps_backwards(node: Apply) -> bool:
    (index, *others) = indices_of(node) or [None]
    return (
        not others
        and isinstance(index, slice)
        and index.start is index.stop is None
        and number(index.step) == -1
    )


def _grouped(sequences: Sequence[_Sequence]) -> list[Part]:
    """Return the sequences as they are given to ``scan``, the taps of one together."""
    groups: list[list[_Sequence]] = []
    for found in sequences:
        last = groups[-1] if groups else []
        fits = last and last[0].source is found.source and last[0].span == found.span
        if fits and found.span and found.start not in {other.start for other in last}:
            last.append(found)
        else:
            groups.append([found])
    return [_given(group) for group in groups]


def _given(group: Sequence[_Sequence]) -> Part:
    source, span = _explicit(group[0].source), group[0].span
    if not span:
        return source
    starts = [found.start for found in group]
    # The first tap is row 0 if it is before the step, else the step is.
    first = -span if max(starts) < span else 0
    taps = text(str([start + first for start in starts]))
    return code("{}(input={}, taps={})", "dict", source, taps)


def _initial(slot: Slot) -> Part:
    """Return what a state starts with, as it is given to ``scan``; ``None`` of another output."""
    if slot.kind is SlotKind.NIT_SOT:
        return text("None")
    if slot.kind is SlotKind.UNTRACED:
        return _explicit(slot.outer_input)
    write = _owner(slot.outer_input, IncSubtensor)
    _owner(write.inputs[0], AllocEmpty)
    rows = write.inputs[1]
    if slot.kind is SlotKind.SIT_SOT:
        return _explicit(_owner(rows, DimShuffle).inputs[0])
    return code(
        "{}(initial={}, taps={})",
        "dict",
        _explicit(_sliced(rows).inputs[0]),
        text(str([int(tap) for tap in slot.taps])),
    )


def _read(part: Part) -> list[Operand]:
    """Return the variables in a part of a call."""
    if isinstance(part, Code):
        return part.operands
    return [part] if isinstance(part, Operand) else []


def _sliced(variable: Variable) -> Apply:
    """Return the node that takes the first rows: ``x[:n]``."""
    node = _owner(variable, Subtensor)
    indices = indices_of(node)
    is_start = (
        len(indices) == 1
        and isinstance(indices[0], slice)
        and indices[0].start is indices[0].step is None
        and indices[0].stop is not None
    )
    if not is_start:
        raise _NotOfThatFormError
    return node


def _owner(variable: Variable, kind: type[Any]) -> Apply:
    if variable.owner is None or not isinstance(variable.owner.op, kind):
        raise _NotOfThatFormError
    node: Apply = variable.owner
    return node
