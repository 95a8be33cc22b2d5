"""The ports of boxes: the slots of a loop, and the inputs and outputs of an inner graph."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.inspection import ReportedLoop, ScanReport, SlotReport
from scanopt_cli.ir.inner_graphs import body_of
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
    slots = reported.report.slots
    sizes = [size.at(_UNKNOWN) for size in reported.sizes]
    steps = Port(name=STEPS, kind=STEPS, fed_by=reported.report.steps)
    return (*(_port(*pair) for pair in zip(slots, sizes, strict=True)), steps)


def _port(slot: SlotReport, size: float) -> Port:
    shape = f" ({', '.join(slot.shape)})" if slot.shape else ""
    note = (
        "" if slot.whole or slot.rows is None else "trimmed" if slot.trimmed else "may be trimmed"
    )
    return Port(
        name=slot.name,
        kind=slot.kind,
        taps=slot.taps,
        out_taps=slot.out_taps if slot.kind == "mit_mot" else (),
        type=f"{slot.dtype}{shape}",
        fed_by=slot.fed_by,
        inside=slot.inside,
        read_by=slot.read_by or (("nothing",) if slot.out_taps else ()),
        rows=slot.rows or "",
        memory="" if slot.bytes is None else size_text(slot.bytes),
        note="; ".join(
            filter(None, (note, "every step draws the same" if slot.same_draws else ""))
        ),
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
