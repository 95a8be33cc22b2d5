"""Let loops that rewrites make say where those that they replace were written.

The stack of a rewritten loop is that of the rewrite. While it is rewritten, the loop that it
replaces is still there, and says where it was written: by its mark, or by the stack of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, FrozenApply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import vars_between
from pytensor.scan.op import Scan
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.integration.distribution_code import written_by_distribution
from scanopt_cli.ir.call_traces import written_in
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import Slot
from scanopt_cli.ir.written import Written, mark, marked, written

_LOG_DENSITIES = "pymc.logprob.scan"
"""The module in which PyMC makes the loop of a log-density of one that draws."""


def handing_on(original: Callable[..., None]) -> Callable[..., None]:
    """Return `FunctionGraph.replace` for rewrites that say where their loops were written."""

    @wraps(original)
    def replace(
        fgraph: FunctionGraph,
        var: Variable,
        new_var: Any,
        reason: Any = None,
        *args: Any,
        **kw: Any,
    ) -> None:
        # Without a reason it is no rewrite: the user replaces a variable by another one.
        if reason is not None and isinstance(new_var, Variable):
            old, new = var.owner, new_var.owner
            if old is not None and new is not None and new not in fgraph.apply_nodes:
                # A program shall not fail for what is only shown.
                with suppress(Exception):
                    _hand_on(fgraph, old, new)
        original(fgraph, var, new_var, reason, *args, **kw)

    return replace


def keeping_apart(original: Callable[..., FrozenApply]) -> Callable[..., FrozenApply]:
    """Return `FrozenApply.__new__` that gives no loop in a body the line of another one.

    In bodies, PyTensor takes equal loops for one, wherever they were written: the first one that
    lives. If they are of two lines, that one says neither.
    """

    @wraps(original)
    def new(cls: type[FrozenApply], op: Op, *args: Any, **kw: Any) -> FrozenApply:
        node = original(cls, op, *args, **kw)
        if node.op is not op and isinstance(core_op(op), Scan):
            with suppress(Exception):
                first, second = written(node.op), written(op)
                if first is not None and first.line and first != second:
                    node.op = marked(node.op, Written("", 0, ""))
        return node

    return new


def of_log_density(op: Scan, frame: FrameType) -> None:
    """Let a loop that PyMC makes for a log-density say where the loop that draws was written."""
    outer = frame.f_back
    if outer is not None and frame.f_globals.get("__name__") == _LOG_DENSITIES:
        loops = [value for value in outer.f_locals.values() if isinstance(value, Scan)]
        if len(loops) == 1 and loops[0] is not op and (found := written(loops[0])) is not None:
            mark(op, found._replace(arguments=()))


def _hand_on(fgraph: FunctionGraph, old: Apply, new: Apply) -> None:
    if isinstance(old.op, OpFromGraph):
        _hand_in(old, new)
        return
    if not is_loop(new):
        return
    if isinstance(old.op, Subtensor) and old.inputs[0].owner is not None:
        old = old.inputs[0].owner  # PyMC replaces what `scan` returns by the buffer
    if is_loop(old) and (found := written_in(old, fgraph.clients)) and found.line:
        known = written(new.op)
        if known is None or known.place != found.place:
            new.op = marked(new.op, found._replace(arguments=_arguments(old, new)))


def _hand_in(old: Apply, new: Apply) -> None:
    """Let the one loop of a distribution that is inlined say where that was written."""
    nodes = (variable.owner for variable in vars_between(old.inputs, new.outputs))
    loops = {node for node in nodes if node is not None and is_loop(node)}
    if len(loops) == 1:
        (node,) = loops
        found = written_by_distribution(old.op)
        if found is not None and written(node.op) is None:
            node.op = marked(node.op, found)


def _arguments(old: Apply, new: Apply) -> tuple[str | None, ...]:
    """Return what the step of ``old`` calls what the slots of ``new`` read: the same variables."""
    names: dict[Any, str | None] = {}
    for slot in view_of(old).slots:
        key = _key(slot)
        names[key] = None if key in names else slot.argument
    found = tuple(names.get(_key(slot)) for slot in view_of(new).slots)
    return found if any(found) else ()


def _key(slot: Slot) -> Any:
    return slot.kind, tuple(slot.taps), slot.outer_input
