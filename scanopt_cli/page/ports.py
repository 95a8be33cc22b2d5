"""The ports of boxes: the slots of a loop, and the inputs and outputs of an inner graph."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.analysis.inspection import ReportedLoop, ScanReport, SlotReport
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.slots import Slot
from scanopt_cli.page.ends import Around
from scanopt_cli.page.picture import Port
from scanopt_cli.text import plural, size_text

_UNKNOWN = 100
"""What a length that is not known counts as, where buffers are drawn to scale."""
STEPS = "steps"
"""The name of the port that says how many steps a loop runs."""


def ports(node: Apply, reported: ReportedLoop | None) -> tuple[Port, ...]:
    """Return the slots of a loop, and last its number of steps; of a graph its ends."""
    if reported is None:
        body = body_of(node.op)
        if body is None:
            return ()
        around = Around.of(node, None)
        return (
            *(Port(name=around.names[v], kind="input", type=type_text(v)) for v in body.inputs),
            *(
                Port(name=name, kind="output", type=type_text(v))
                for name, v in zip(around.output_names, body.outputs, strict=True)
            ),
        )
    steps = Port(name=STEPS, kind=STEPS, fed_by=reported.report.steps)
    of_loop = zip(reported.loop.view.slots, reported.report.slots, reported.sizes, strict=True)
    return (*(_port(slot, told, size.at(_UNKNOWN)) for slot, told, size in of_loop), steps)


def _port(slot: Slot, told: SlotReport, size: float) -> Port:
    shape = f" ({', '.join(told.shape)})" if told.shape else ""
    is_constant = slot.has_input and isinstance(slot.outer_input, Constant)
    return Port(
        name=told.name,
        kind=told.kind,
        taps=told.taps,
        out_taps=told.out_taps if told.kind == "mit_mot" else (),
        type=f"{told.dtype}{shape}",
        fed_by=f"a constant: {told.fed_by}" if is_constant and told.fed_by else told.fed_by,
        inside=told.inside,
        read_by=told.read_by or (("nothing",) if told.out_taps else ()),
        rows=told.rows or "",
        memory="" if told.bytes is None else size_text(told.bytes),
        note="; ".join(_notes(told)),
        size=size,
    )


def _notes(slot: SlotReport) -> Iterator[str]:
    if slot.rows is not None and not slot.whole:
        yield "trimmed" if slot.trimmed else "may be trimmed"
    if slot.same_draws:
        yield "every step draws the same numbers"


def facts(scan: ScanReport) -> Iterator[str]:
    """Yield what there is to know of a loop, in short lines."""
    yield plural(scan.steps, "step")
    yield f"{plural(scan.inner_nodes, 'node')} inside"
    if scan.bytes != "0":
        yield f"buffers: {size_text(scan.bytes)}"
    if scan.stops_when is not None:
        yield f"stops when {scan.stops_when}"
    if scan.runs_while is not None:
        yield f"goes on while {scan.runs_while}"
    if scan.batch_ndim:
        yield f"batched over {plural(scan.batch_ndim, 'axis' if scan.batch_ndim == 1 else 'axe')}"
    if scan.truncate_gradient != -1:
        yield f"gradient truncated after {plural(scan.truncate_gradient, 'step')}"
    yield f"a step: {scan.step.text()}"


def type_text(variable: Variable) -> str:
    """Return ``float64 (3, ?)``, or the name of a type that has no dtype."""
    kind = variable.type
    dtype = getattr(kind, "dtype", None)
    if dtype is None:
        return type(kind).__name__
    shape = getattr(kind, "shape", ())
    lengths = ", ".join("?" if n is None else str(n) for n in shape)
    return f"{dtype} ({lengths})" if shape else str(dtype)
