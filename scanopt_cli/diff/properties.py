"""Changes of an Op that is not a loop: in the properties it declares, else in its state."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.diff.labels import op_label, shortened
from scanopt_cli.equivalence.encoding import state

type Told = tuple[str, str | None, str | None]
"""A property, its old and its new value; ``None`` where no text shows the difference."""

_ADDRESS = " at 0x"
UNTOLD: Told = ("differs in a way that has no short text", None, None)


def changed_properties(before: Op, after: Op) -> list[Told]:
    """Return the differences between two Ops of different digests; at least one."""
    label, relabel = op_label(before), op_label(after)
    if type(before) is not type(after):
        return [("op", label, relabel)]
    different = list(_different(before, after))
    if label != relabel and (len(different) != 1 or isinstance(before, Elemwise)):
        return [("op", label, relabel)]
    return different or [UNTOLD]


def _different(before: Op, after: Op) -> Iterator[Told]:
    others = dict(state(after))
    for name, value in state(before):
        other = others.get(name)
        if other is value:
            continue
        text, retext = repr(value), repr(other)
        if _ADDRESS in text and type(other) is type(value):
            # The texts hold addresses, not values.
            yield f"{name} is another {type(value).__name__}", None, None
        elif text != retext:
            text, retext = shortened(text), shortened(retext)
            is_shown = text != retext
            yield (name, text, retext) if is_shown else (f"{name} differs", None, None)
