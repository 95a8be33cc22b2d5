"""Find the Op that keeps PyTensor from differentiating a graph."""

from __future__ import annotations

from collections.abc import Sequence

from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.gradient import grad as reverse_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.null_type import NullType
from pytensor.scalar.basic import Composite
from pytensor.scan.op import Scan

from scanopt_cli.autodiff.activity import active_nodes, is_complex, is_float
from scanopt_cli.autodiff.pedigree.recorder import without_tokens
from scanopt_cli.autodiff.pushforward_rules import short, without_preamble
from scanopt_cli.autodiff.strategies import total
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.inner_graphs import core_op


def error_naming_the_op(
    error: Exception,
    inputs: Sequence[Variable],
    names: Sequence[str],
    outputs: Sequence[Variable],
    source: str,
) -> GradientError:
    """Return the error to raise in place of ``error``, which `pytensor.grad` has raised.

    The pullback of every Op between ``inputs`` and ``outputs``, bodies included, is tried by
    itself: first of Ops without a body, then of Scans and OpFromGraphs, the innermost first. The
    message names the first Op whose pullback fails, and the Scans around it. The hint names those
    of ``inputs``, called ``names``, by which there is a derivative.
    """
    works = [name for name, v in zip(names, inputs, strict=True) if _is_differentiable(outputs, v)]
    hint = f"there is a derivative by {', '.join(works)}" if works else None
    places = list(active_nodes(inputs, outputs))
    simple = [place for place in places if not _is_looked_into(place.node)]
    holders = [place for place in reversed(places) if _is_looked_into(place.node)]
    for place in simple + holders:
        why = _why_not(place.node)
        if why is not None:
            inside = f" in {'/'.join(place.path)}" if place.path else ""
            return GradientError(
                f"{place.node.op}{inside} has no derivative ({why})",
                where=source,
                hint=hint or _remedy(place.node),
            )
    return GradientError(
        f"PyTensor cannot differentiate this graph: {without_tokens(short(error))}",
        where=source,
        hint=hint,
    )


def refuse_complex(
    inputs: Sequence[Variable], names: Sequence[str], output: Variable, source: str
) -> None:
    """Refuse a derivative through complex numbers, for PyTensor's reason if it has one.

    Raises
    ------
    GradientError
        If there are complex numbers between ``inputs``, called ``names``, and ``output``.
    """
    nodes = (place.node for place in active_nodes(inputs, [output]))
    through = next((node for node in nodes if any(map(is_complex, node.outputs))), None)
    if through is None:
        return
    try:
        reverse_mode(total([output]), list(inputs))
    except Exception as error:
        raise error_naming_the_op(error, inputs, names, [output], source) from error
    raise GradientError(
        f"the output depends on {', '.join(names)} through complex numbers, made by {through.op}",
        where=source,
        hint="differentiate with pytensor.grad, or compute with real and imaginary parts",
    )


def _is_differentiable(outputs: Sequence[Variable], variable: Variable) -> bool:
    try:
        reverse_mode(total(outputs), variable)
    except Exception:
        return False
    return True


def _is_looked_into(node: Apply) -> bool:
    core = core_op(node.op)
    return isinstance(core, Scan) or (
        isinstance(core, OpFromGraph) and core.pullback_overrides is None
    )


def _remedy(node: Apply) -> str | None:
    if isinstance(getattr(node.op, "scalar_op", None), Composite):
        return "compiling has fused it: differentiate the graph as it is before that"
    return None


def _why_not(node: Apply) -> str | None:
    """Why the Op of ``node`` has no derivative; ``None`` if it has one."""
    cotangents = [
        output.zeros_like() if is_float(output) else disconnected_type()  # type: ignore[attr-defined]
        for output in node.outputs
    ]
    if all(isinstance(cotangent.type, DisconnectedType) for cotangent in cotangents):
        return None
    try:
        found = list(node.op.pullback(list(node.inputs), list(node.outputs), cotangents))
    except Exception as error:
        return without_tokens(short(error))
    undefined = (
        term
        for variable, term in zip(node.inputs, found, strict=False)
        if isinstance(term.type, NullType) and is_float(variable)
    )
    return next((without_preamble(str(term.type.why_null)) for term in undefined), None)
