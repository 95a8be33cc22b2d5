"""Readers of all axes of traces whose rows are vectors and matrices.

A reader is a chain of a few steps: slices, entries, joins, writes, sums, products, changes of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable

from support.axis_loops import COUNTS, LOOPS, WIDTH, Inputs, arguments
from support.graph_building import scan

_MOST_AXES = 4


@dataclass(frozen=True)
class Read:
    """Something that is read of a trace, and how, as text."""

    text: str
    value: Any

    @property
    def ndim(self) -> int:
        return int(self.value.type.ndim)

    def then(self, text: str, value: Any) -> Read:
        """Name what is read of this, as ``x``."""
        return Read(f"[{text} of {self.text}]", value)


_NUMBERS = st.integers(-4, 4)
_STRIDES = st.sampled_from([None, None, None, 1, -1, -1, 2, -2])


class Reader:
    """Draws the steps of a reader."""

    def __init__(self, draw: st.DrawFn, inputs: Inputs, traces: Sequence[Any]) -> None:
        self.draw, self.inputs = draw, inputs
        self.traces = [Read(f"trace{place}", trace) for place, trace in enumerate(traces)]

    def read(self) -> Read:
        """Draw a trace, and what is read of it in a few steps, mostly of some of its rows."""
        read = self.trace()
        if self.draw(st.sampled_from([True, True, False])):
            read = self.ends(read)
        for _ in range(self.draw(st.integers(0 if read.ndim < 3 else 1, 3))):
            if read.ndim:
                with suppress(IndexError, ValueError):  # known lengths may not fit
                    read = self.step(read)
        return read

    def trace(self) -> Read:
        return self.draw(st.sampled_from(self.traces))

    def step(self, x: Read) -> Read:
        """Draw a step of a reader."""
        styles = [self.indexed] * 6 + [self.written] * 2 + [self.joined] * 2
        styles += [self.moved, self.reshaped, self.reduced, self.picked, self.stated] * 2
        styles += [self.multiplied] * 2 + [self.computed, self.looped]
        return self.draw(st.sampled_from(styles))(x)

    def bound(self, x: Read, axis: int) -> tuple[str, Any]:
        i, length = self.inputs, x.value.shape[axis]
        number = self.draw(_NUMBERS)
        symbols = {
            "j": i.j,
            "n": i.n,
            "n-1": i.n - 1,
            "k": i.k,
            "length": length,
            "length-1": length - 1,
            "-length": -length,
        }
        name = self.draw(st.sampled_from(["", "", "number", "number", "number", *symbols]))
        if not name:
            return "", None
        return (str(number), number) if name == "number" else (name, symbols[name])

    def cut(self, x: Read, axis: int) -> tuple[str, Any]:
        """Draw a slice of an axis."""
        (low, start), (high, stop) = self.bound(x, axis), self.bound(x, axis)
        stride = self.draw(_STRIDES)
        return f"{low}:{high}:{stride or ''}", slice(start, stop, stride)

    def place(self) -> tuple[str, Any]:
        """Draw an index of an axis."""
        symbols = {"j": self.inputs.j, "n-1": self.inputs.n - 1}
        name = self.draw(st.sampled_from(["", "", "", *symbols]))
        number = self.draw(_NUMBERS)
        return (name, symbols[name]) if name else (str(number), number)

    def index(self, x: Read) -> tuple[str, tuple[Any, ...]]:
        """Draw an index of one axis, or of several."""
        parts = [(":", slice(None))] * x.ndim
        axes = self.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=2, unique=True))
        for axis in axes:
            is_slice = self.draw(st.sampled_from([True, True, True, False]))
            parts[axis] = self.cut(x, axis) if is_slice else self.place()
        parts = parts[: max(axes) + 1]
        return ", ".join(text for text, _ in parts), tuple(part for _, part in parts)

    def indexed(self, x: Read) -> Read:
        text, index = self.index(x)
        return Read(f"{x.text}[{text}]", x.value[index])

    def ends(self, x: Read) -> Read:
        """Draw some of the first or of the last rows, and perhaps a part of each."""
        low, high = sorted(self.draw(st.lists(st.integers(0, 4), min_size=2, max_size=2)))
        forms: dict[str, Any] = {
            f"{low}:{high}": slice(low, high),
            f"{-high}:": slice(-high, None),
            f"{-high}:{-low}": slice(-high, -low),
            f"{high}:{low}:-1": slice(high, low, -1),
            f"{-1 - low}:{-1 - high}:-1": slice(-1 - low, -1 - high, -1),
            f":{-high}:-1": slice(None, -high, -1),
            f"{-high}::2": slice(-high, None, 2),
            str(low): low,
            str(-1 - low): -1 - low,
            "-1": -1,
            "-1:": slice(-1, None),
            "n-1": self.inputs.n - 1,
            "[0, -1]": [0, -1],
            f"[{-1 - low}, {low}]": [-1 - low, low],
            f"n-{high}:": slice(self.inputs.n - high, None),
        }
        name = self.draw(st.sampled_from(sorted(forms)))
        if not name.startswith("[") and x.ndim > 1 and self.draw(st.booleans()):
            axis = self.draw(st.integers(1, x.ndim - 1))
            is_slice = self.draw(st.booleans())
            text, part = self.cut(x, axis) if is_slice else self.place()
            index = (forms[name], *(slice(None),) * (axis - 1), part)
            return Read(f"{x.text}[{name}, {':, ' * (axis - 1)}{text}]", x.value[index])
        return Read(f"{x.text}[{name}]", x.value[forms[name]])

    def picked(self, x: Read) -> Read:
        axis = self.draw(st.integers(0, x.ndim - 1))
        numbers = self.draw(st.lists(st.integers(-3, 2), min_size=1, max_size=3))
        style = self.draw(st.sampled_from(["list", "list", "points", "counted", "condition"]))
        before = (slice(None),) * axis
        if style == "points" and x.ndim > 1:
            columns = self.draw(
                st.lists(st.integers(-1, 0), min_size=len(numbers), max_size=len(numbers))
            )
            return Read(f"{x.text}[{numbers}, {columns}]", x.value[numbers, columns])
        if style == "counted":
            counts = pt.arange(x.value.shape[axis])[::-1]
            return Read(f"{x.text}[axis {axis} counted down]", x.value[(*before, counts)])
        if style == "condition":
            return Read(f"{x.text}[x > 0.5]", x.value[x.value > 0.5])
        return Read(f"{x.text}[axis {axis}: {numbers}]", x.value[(*before, numbers)])

    def moved(self, x: Read) -> Read:
        order: list[Any] = list(self.draw(st.permutations(range(x.ndim))))
        if x.ndim < _MOST_AXES and self.draw(st.booleans()):
            order.insert(self.draw(st.integers(0, x.ndim)), "x")
        return Read(f"{x.text}.dimshuffle{tuple(order)}", x.value.dimshuffle(*order))

    def reshaped(self, x: Read) -> Read:
        rows = x.value.shape[0]
        forms: dict[str, Callable[[], Any]] = {
            "flatten()": x.value.flatten,
            "reshape(rows, -1)": lambda: x.value.reshape((rows, -1)),
            "reshape(-1, 1)": lambda: x.value.reshape((-1, 1)),
            "reshape(1, rows, -1)": lambda: x.value.reshape((1, rows, -1)),
            "reshape(its shape)": lambda: x.value.reshape(x.value.shape, ndim=x.ndim),
        }
        if x.ndim > 1:
            last = x.value.shape[-1]
            forms["flatten(2)"] = lambda: x.value.flatten(2)
            forms["reshape(-1, last)"] = lambda: x.value.reshape((-1, last))
        name = self.draw(st.sampled_from(sorted(forms)))
        return Read(f"{x.text}.{name}", forms[name]())

    def reduced(self, x: Read) -> Read:
        axis = self.draw(st.integers(0, x.ndim - 1))
        kind = self.draw(st.sampled_from(["sum", "sum", "prod", "cumsum", "diff"]))
        return x.then(f"{kind} along {axis}", getattr(pt, kind)(x.value, axis=axis))

    def joined(self, x: Read) -> Read:
        axis = self.draw(st.integers(0, x.ndim - 1))
        text, part = self.cut(x, axis)
        some = x.value[(*(slice(None),) * axis, part)]
        operands = self.draw(st.permutations([("x", x.value), (f"x[{text}]", some)]))
        if self.draw(st.booleans()):
            operands = [*operands, ("zeros", pt.zeros_like(some))]
        names = ", ".join(name for name, _ in operands)
        return x.then(f"join({axis}, {names})", pt.concatenate([o for _, o in operands], axis=axis))

    def written(self, x: Read) -> Read:
        text, index = self.index(x)
        target_name, target = self.draw(
            st.sampled_from([("x", x.value), ("x", x.value), ("zeros", pt.zeros_like(x.value))])
        )
        place = target[index]
        values = {"0": 0.0, "2": 2.0, "itself": x.value[index] * 1.5}
        if place.type.ndim and self.draw(st.booleans()):
            values["its first"] = place[:1]
        name = self.draw(st.sampled_from(sorted(values)))
        is_set = self.draw(st.booleans())
        write = pt.set_subtensor if is_set else pt.inc_subtensor
        how = "set" if is_set else "inc"
        return x.then(f"{target_name}[{text}].{how}({name})", write(place, values[name]))

    def stated(self, x: Read) -> Read:
        axis = self.draw(st.integers(0, x.ndim - 1))
        length = x.value.shape[axis]
        shape = [length if place == axis else None for place in range(x.ndim)]
        return x.then(f"axis {axis} stated", pt.specify_shape(x.value, shape))

    def multiplied(self, x: Read) -> Read:
        axis = self.draw(st.integers(0, x.ndim - 1))
        before = (slice(None),) * axis
        other = self.trace()
        forms: dict[str, Callable[[], Any]] = {
            f"x * its first along {axis}": lambda: (
                x.value * x.value[(*before, slice(0, 1))].sum(axis, keepdims=True)
            ),
            f"x * its sum along {axis}": lambda: x.value * x.value.sum(axis, keepdims=True),
            f"x + x turned along {axis}": lambda: (
                x.value + x.value[(*before, slice(None, None, -1))]
            ),
            "x times a length": lambda: x.value * x.value.shape[axis],
            "x with a trace's length": lambda: x.value[: other.value.shape[0]],
        }
        if x.ndim < _MOST_AXES:
            forms["outer product"] = lambda: x.value[None] * x.value[:, None]
        if x.ndim == 2:
            forms["x @ x.T"] = lambda: x.value @ x.value.T
        if x.ndim == other.ndim:
            forms[f"x + {other.text}"] = lambda: x.value + other.value
            forms[f"x * {other.text}"] = lambda: x.value * other.value
        name = self.draw(st.sampled_from(sorted(forms)))
        return x.then(name, forms[name]())

    def computed(self, x: Read) -> Read:
        def inlined() -> Any:
            inner = x.value.type()
            return OpFromGraph([inner], [inner * 2], inline=True)(x.value)

        forms: dict[str, Callable[[], Any]] = {
            "sin": lambda: pt.sin(x.value),
            "inlined": inlined,
            "ones": lambda: pt.ones_like(x.value),
            "filled": lambda: pt.alloc(
                x.value[0], 3, *[x.value.shape[a] for a in range(1, x.ndim)]
            ),
        }
        name = self.draw(st.sampled_from(sorted(forms)))
        return x.then(name, forms[name]())

    def looped(self, x: Read) -> Read:
        """Let a later loop read the rows."""
        if self.draw(st.booleans()):
            rows = scan(lambda row: row * 2, sequences=[x.value])
            return x.then("rows doubled", rows)
        n = self.draw(st.sampled_from([None, self.inputs.n]))
        rows = scan(
            lambda row, total: total * 0.5 + row,
            sequences=[x.value],
            outputs_info=[pt.zeros(x.value.shape[1:])],
            n_steps=n,
        )
        return x.then(f"rows added up{' n times' if n is not None else ''}", rows)


@dataclass(frozen=True)
class ReadTraces:
    """A graph of readers of a loop, with values to run it on."""

    text: str
    inputs: list[Variable]
    outputs: list[Any]
    arguments: list[list[Any]]

    def __repr__(self) -> str:
        return self.text

    @property
    def with_steps(self) -> list[list[Any]]:
        """The arguments for which loops run: of no steps, PyTensor's Scan has no shape."""
        return [values for values in self.arguments if all(values[3:5])]


@st.composite
def read_traces(draw: st.DrawFn, most: int = 2) -> ReadTraces:
    """Draw one to so many readers of the outputs of a loop."""
    is_static = draw(st.booleans())
    inputs = Inputs.of_width(WIDTH if is_static else None)
    loop = draw(st.sampled_from(LOOPS))
    reader = Reader(draw, inputs, loop(inputs))
    reads = [reader.read() for _ in range(draw(st.integers(1, most)))]
    counts = [c for c in COUNTS if c[0] == WIDTH or not is_static]
    width = " of known width" if is_static else ""
    text = f"{loop.__name__}{width}: {'; '.join(read.text for read in reads)}"
    return ReadTraces(text, inputs.all, [r.value for r in reads], [arguments(*c) for c in counts])
