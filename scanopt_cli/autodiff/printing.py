"""One Scan as text: its outer inputs, and PyTensor's own trees of what one step computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytensor.graph.basic import Variable
from pytensor.printing import debugprint

from scanopt_cli.analysis.expression_text import at_tap, describe, inner_names
from scanopt_cli.ir.naming import Clients, slot_names
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.text import printable


def scan_text(view: SlotView, clients: Clients, around: Mapping[Variable, str]) -> str:
    """Return the slots of ``view`` with their outer inputs, and a tree for each inner output.

    ``around`` names outer variables that have no name of their own. The trees have no letters that
    number nodes, and name inner inputs after their slots.
    """
    names = list(map(printable, slot_names(view, clients)))
    lines = [str(view.node.op), f"    n_steps: {describe(view.n_steps, around)}"]
    for slot, name in zip(view.slots, names, strict=True):
        called = slot.label if name == slot.label else f"{slot.label} {name}"
        lines.append(f"    {called}: {describe(slot.outer_input, around)}")
    lines = list(map(printable, lines))
    for title, tree in _trees(view, names):
        lines += ["", title, tree]
    return "\n".join(lines)


def _trees(view: SlotView, names: list[str]) -> Iterator[tuple[str, str]]:
    """A title and a tree for each inner output."""
    inside = {
        variable: variable.type(name=name) for variable, name in inner_names(view, names).items()
    }
    computed = iter(view.op.fgraph.bind(inside))
    called = dict(zip(map(id, view.slots), names, strict=True))
    for slot in view.outputs():
        for tap in slot.out_taps:
            yield f"{called[id(slot)]}[{at_tap(tap)}] =", _tree(next(computed))
    if view.is_while:
        yield "stops when" if isinstance(view, ScanView) else "goes on while", _tree(next(computed))


def _tree(variable: Variable) -> str:
    text = str(debugprint(variable, file="str", id_type=""))
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n")[:-1])
