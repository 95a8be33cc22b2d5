"""P009: lengths that are not known, and keep a loop on arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.finding_costs import work
from scanopt_cli.rules.lowered_loops import LoweredLoop, lowered_loops
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity
from scanopt_cli.text import enumerated

_LENGTHS = (3, 2)
"""The lengths that are tried out, the second if the first does not fit others that are known."""
_ROWS = (SlotKind.SEQ, SlotKind.MIT_SOT, SlotKind.SIT_SOT)


class UnknownShapes(Rule):
    """Each step computes on arrays, and would compute in registers if lengths were known.

    Arrays of few entries are computed in registers if their shapes are known when the graph is
    compiled: a step of a Kalman filter of three states takes 0.03 µs, not 0.2. An operation on an
    array of unknown shape is a call, and allocates memory::

        P0, A = pt.dmatrices("P0", "A")  # unknown
        P0, A = (pt.tensor(name, shape=(3, 3), dtype="float64") for name in ("P0", "A"))  # known

    Give the inputs that are named a static shape: ``pt.tensor("x", shape=(3,))``,
    ``pt.specify_shape(x, (3,))``, ``pytensor.shared(value, shape=value.shape)``, or
    ``pm.freeze_dims_and_data`` in PyMC. It pays for small arrays: a step of a filter of 2 to
    8 states takes a fifth to a quarter of the time, of 12 states nine tenths, and from 16 on as
    long as before. A network, which multiplies one vector by a matrix, gains a quarter up to 32
    units, and nothing from 64 on. Compiling takes as long with as without.

    It is tried out: with three entries along each of these lengths (or two, if three do not fit
    lengths that are known), the loop does run on numbers (within ``so.enabled()``, or after the
    preset ``loop``). Gradients of a loop, and loops inside of others, are not looked at.
    """

    code: ClassVar[str] = "P009"
    name: ClassVar[str] = "unknown-shapes"
    severity: ClassVar[Severity] = Severity.NOTE

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop, the first of those that the same inputs keep on arrays."""
        lengths = Lengths()
        kept = [
            (loop, axes)
            for loop in context.scans
            if loop.holder is None
            and (axes := _axes_of_rows(context, loop, lengths))
            and (found := context.lowered.get(loop.title)) is not None
            and found.lacks_lengths
            and not found.runs_on_numbers
        ]
        if not kept:
            return
        given, after = _tried(context, kept)
        told: set[frozenset[Variable]] = set()
        for loop, axes in kept:
            found = after.get(loop.title)
            if found is None or not found.runs_on_numbers or frozenset(axes) in told:
                continue
            told.add(frozenset(axes))
            names = _named(axes, given)
            text = (
                "each step computes on arrays, since shapes are not known: if no axis is longer "
                f"than about 8, give {names}"
            )
            yield self.at(context, loop, text, cost=work(loop))


type Axes = Mapping[Variable, tuple[int, ...]]


def _axes_of_rows(context: CheckContext, loop: NamedLoop, lengths: Lengths) -> Axes:
    """Return the axes of inputs of the graph that decide shapes in a step, and are not known."""
    view = loop.view
    counts = _counted(view.n_steps, lengths)
    found: dict[Variable, set[int]] = {}
    inputs = set(context.fgraph.inputs)
    for slot in view.of_kind(*_ROWS, SlotKind.NON_SEQ):
        kind, outer = slot.inner_inputs[0].type, slot.outer_input
        if not isinstance(kind, DenseTensorType):
            continue
        first = view.batch_ndim + int(slot.kind in _ROWS)
        for axis, length in enumerate(kind.shape):
            if length is None:
                for atom in lengths.length_of(outer, first + axis).atoms:
                    if atom.variable in inputs and atom.axis is not None:
                        found.setdefault(atom.variable, set()).add(atom.axis)
    known = {
        variable: tuple(sorted(axes - counts.get(variable, set())))
        for variable, axes in found.items()
    }
    order = {variable: place for place, variable in enumerate(context.fgraph.inputs)}
    return {v: known[v] for v in sorted(known, key=order.__getitem__) if known[v]}


def _counted(n_steps: Variable, lengths: Lengths) -> dict[Variable, set[int]]:
    """Return the axes that a number of steps is computed of: they are as long as data is."""
    found: dict[Variable, set[int]] = {}
    for atom in lengths.value_of(n_steps).atoms:
        if atom.axis is not None:
            found.setdefault(atom.variable, set()).add(atom.axis)
    for variable in ancestors([n_steps]):
        node = variable.owner
        if node is not None and isinstance(node.op, Shape | Shape_i):
            for atom in lengths.length_of(node.inputs[0], getattr(node.op, "i", 0)).atoms:
                if atom.axis is not None:
                    found.setdefault(atom.variable, set()).add(atom.axis)
    return found


def _tried(
    context: CheckContext, kept: list[tuple[NamedLoop, Axes]]
) -> tuple[Mapping[Variable, Variable], Mapping[str, LoweredLoop]]:
    """Return inputs of known shapes, and what becomes of the loops with them."""
    given: dict[Variable, Variable] = {}
    for length in _LENGTHS:
        given = {v: _static(v, kept, length) for _, axes in kept for v in axes}
        # PyTensor raises errors of many kinds for shapes that do not fit.
        with suppress(Exception):
            loops = [loop for loop, _ in kept]
            return given, lowered_loops(context.fgraph, loops, given, strict=True)
    return given, {}


def _static(variable: Variable, kept: list[tuple[NamedLoop, Axes]], length: int) -> Variable:
    """Return an input of a known shape in place of another one."""
    axes = {axis for _, found in kept for axis in found.get(variable, ())}
    kind: Any = variable.type
    shape = tuple(length if i in axes else known for i, known in enumerate(kind.shape))
    made: Variable = kind.clone(shape=shape)(name=variable.name)
    return made


def _named(axes: Axes, given: Mapping[Variable, Variable]) -> str:
    """Return the inputs that are to be given a static shape, and how the first of them is."""
    listed = enumerated([f"`{variable.name or variable}`" for variable in axes])
    first = next(iter(axes))
    kind: Any = given[first].type
    is_shared = isinstance(first, SharedVariable)
    call = "pytensor.shared(value," if is_shared else f"pt.tensor({first.name!r},"
    return f"{listed} a static shape, as {call} shape={kind.shape})"
