"""Plans of loops: plain data that says which Scan graph to build, and reads as pseudo-code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

BATCH = 2
"""Length of the batch axis of a vectorised graph."""

WIDTH = 3
"""Length of every vector that a loop works on, and of both sides of every matrix."""

GENERATOR = "generator"
"""What a step calls the random generator that it draws from, and hands on to the next step."""


class Kind(Enum):
    """What one step sees of a value: its dtype and its shape."""

    REAL = "float64", 0
    VECTOR = "float64", 1
    MATRIX = "float64", 2
    INTEGER = "int64", 0

    def __init__(self, dtype: str, ndim: int) -> None:
        self.dtype = dtype
        self.ndim = ndim
        self.shape = (WIDTH,) * ndim


class Role(Enum):
    """What an input of the graph is for, which decides the values it is given."""

    STEPS = "steps"
    INNER_STEPS = "inner steps"
    INDEX = "index"
    SEQUENCE = "sequence"
    VALUE = "value"
    GENERATOR = "generator"

    @property
    def letter(self) -> str:
        """The first letter of the names of such inputs."""
        letters = {"steps": "n", "inner steps": "m", "index": "k", "sequence": "x"}
        return letters.get(self.value, self.value[0])


@dataclass(frozen=True)
class Input:
    """An input of the graph.

    ``rows`` is the length of a leading axis: of an initial state with several taps, or what a
    sequence needs beyond the steps because of its taps. 0 gives a value no leading axis.
    """

    name: str
    role: Role
    kind: Kind
    rows: int = 0

    @property
    def ndim(self) -> int:
        return self.kind.ndim + (self.role is Role.SEQUENCE or self.rows > 0)

    def __str__(self) -> str:
        if self.role is Role.GENERATOR:
            return f"{self.name} (generator)"
        rows = f", {self.rows} rows" if self.rows else ""
        return f"{self.name} ({self.role.value}, {self.kind.name.lower()}{rows})"


@dataclass(frozen=True)
class Constant:
    """A constant: ``value`` in every element, or counting up from it if ``ramp``."""

    name: str
    kind: Kind
    value: float
    rows: int = 0
    ramp: bool = False

    def __str__(self) -> str:
        shape = (self.rows, *self.kind.shape) if self.rows else self.kind.shape
        return f"{self.name} = {self.value}{' counting up' if self.ramp else ''}, shape {shape}"


@dataclass(frozen=True)
class Alloc:
    """``rows`` (a number, or an input's name) times the value of the input ``source``."""

    name: str
    kind: Kind
    source: str
    rows: int | str

    def __str__(self) -> str:
        return f"{self.name} = alloc({self.source}, {self.rows} rows)"


@dataclass(frozen=True)
class Expression:
    """An operator of `operators.OPERATORS` on operands, or a read or a constant."""

    operator: str
    operands: tuple[Any, ...]

    @property
    def parts(self) -> set[str]:
        """The names of the loop's parts that are read."""
        if self.operator == "read":
            return {_part(self.operands[0])}
        operands = [operand for operand in self.operands if isinstance(operand, Expression)]
        return set().union(*(operand.parts for operand in operands))

    @property
    def operators(self) -> set[str]:
        """The names of the operators in it."""
        operands = [operand for operand in self.operands if isinstance(operand, Expression)]
        return {self.operator}.union(*(operand.operators for operand in operands))

    def __str__(self) -> str:
        if self.operator in ("read", "constant"):
            return str(self.operands[0])
        return f"{self.operator}({', '.join(map(str, self.operands))})"


@dataclass(frozen=True)
class Sequence:
    """A sequence over ``source``, a name of the surrounding graph."""

    name: str
    source: str
    kind: Kind
    taps: tuple[int, ...] = (0,)
    reversed: bool = False

    @property
    def slices(self) -> tuple[str, ...]:
        return _slices(self.name, self.taps)

    def __str__(self) -> str:
        direction = "[::-1]" if self.reversed else ""
        return f"sequence {self.name} = {self.source}{direction} at {list(self.taps)}"


@dataclass(frozen=True)
class State:
    """A recurrent state that starts with ``source``, a name of the surrounding graph."""

    name: str
    source: str
    kind: Kind
    taps: tuple[int, ...]
    update: Expression

    @property
    def slices(self) -> tuple[str, ...]:
        return _slices(self.name, self.taps)

    def __str__(self) -> str:
        return f"state {self.name} from {self.source} at {list(self.taps)} -> {self.update}"


@dataclass(frozen=True)
class NonSequence:
    """A value that each step sees whole."""

    name: str
    source: str
    kind: Kind

    def __str__(self) -> str:
        return f"non-sequence {self.name} = {self.source}"


@dataclass(frozen=True)
class RandomNumbers:
    """Normal numbers that each step draws, of variance 1; their mean is 0 if there is none."""

    name: str
    kind: Kind
    mean: Expression | None = None

    def __str__(self) -> str:
        mean = "0" if self.mean is None else self.mean
        return f"random {self.kind.name.lower()} {self.name} of mean {mean}"


@dataclass(frozen=True)
class Map:
    """An output of each step that no later step reads."""

    name: str
    kind: Kind
    value: Expression

    def __str__(self) -> str:
        return f"map {self.name} -> {self.value}"


@dataclass(frozen=True)
class Loop:
    """One `scan` call; ``steps`` is an input's name, a number, or None for "as the sequences".

    ``generator`` is the input that ``random`` is drawn from.
    """

    steps: str | int | None
    sequences: tuple[Sequence, ...]
    non_sequences: tuple[NonSequence, ...]
    inner: tuple[InnerLoop, ...]
    states: tuple[State, ...]
    maps: tuple[Map, ...]
    until: Expression | None = None
    go_backwards: bool = False
    generator: str | None = None
    random: tuple[RandomNumbers, ...] = ()

    @property
    def step_names(self) -> tuple[str, ...]:
        """What `scan` hands to a step: slices, past values, the generator, non-sequences."""
        names = [name for item in (*self.sequences, *self.states) for name in item.slices]
        names += [GENERATOR] if self.generator else []
        return (*names, *(item.name for item in self.non_sequences))

    @property
    def results(self) -> dict[str, Kind]:
        return {result.name: result.kind for result in (*self.states, *self.maps)}

    @property
    def readable(self) -> dict[str, Kind]:
        """The results that outputs may read: all but the states that only feed each other."""
        return {name: kind for name, kind in self.results.items() if not name.startswith("d")}

    @property
    def operators(self) -> set[str]:
        """The names of the operators of a step, those of the loops inside of it among them."""
        expressions = [state.update for state in self.states]
        expressions += [item.value for item in self.maps]
        expressions += [item.mean for item in self.random if item.mean is not None]
        expressions += [] if self.until is None else [self.until]
        names = set().union(*(expression.operators for expression in expressions))
        return names.union(*(item.loop.operators for item in self.inner))

    def sources_of(self, names: Iterable[str]) -> set[str]:
        """Return the names of the surrounding graph that these parts of the loop depend on."""
        # A map that passes an inner loop's read on has its name, so the inner loop comes last.
        outside = (*self.sequences, *self.non_sequences, *self.states, *self.random)
        by_name = {part.name: part for part in (*outside, *self.maps, *self.inner)}
        sources: set[str] = set()
        pending, seen = list(names), set()
        while pending:
            name = pending.pop()
            if name not in seen:
                seen.add(name)
                outside, inside = _dependencies(by_name[name])
                sources |= outside
                pending += inside
        return sources

    def __str__(self) -> str:
        backwards = ", backwards" if self.go_backwards else ""
        until = f", until {self.until}" if self.until else ""
        parts: list[object] = [*self.sequences, *self.non_sequences, *self.random]
        parts += [*self.inner, *self.states, *self.maps]
        body = "\n".join(map(str, parts)).replace("\n", "\n  ")
        random = f", drawing from {self.generator}" if self.generator else ""
        return f"loop(steps={self.steps}{backwards}{until}{random})\n  {body}"


@dataclass(frozen=True)
class Read:
    """How a loop's result is read: a style of `building.READS` and the results it takes."""

    style: str
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.style}({', '.join(self.results)})"


@dataclass(frozen=True)
class InnerLoop:
    """A loop inside a step; the step sees ``read`` of it under ``name``."""

    name: str
    read: Read
    loop: Loop
    kind: Kind

    def __str__(self) -> str:
        return f"{self.name} = {self.read} of {self.loop}"


@dataclass(frozen=True)
class Program:
    """A whole graph: its inputs, its loop, what is read, and what is wrapped around it.

    ``static_shapes`` says whether the types of vectors state their length. The sum of
    ``gradient_of`` is differentiated by ``wrt``, and with ``second_gradient`` the sum of all
    entries of that once more. ``batched`` names the inputs that get a batch axis, which makes a
    Blockwise of the Scan.
    """

    inputs: tuple[Input, ...]
    constants: tuple[Constant | Alloc, ...]
    loop: Loop
    reads: tuple[Read, ...]
    static_shapes: bool = True
    gradient_of: Read | None = None
    wrt: tuple[str, ...] = ()
    in_op_from_graph: bool = False
    batched: tuple[str, ...] = ()
    second_gradient: bool = False

    def __str__(self) -> str:
        lines = [f"input {variable}" for variable in self.inputs]
        if not self.static_shapes:
            lines.append("no static shapes")
        lines += [f"constant {constant}" for constant in self.constants]
        lines.append(str(self.loop))
        lines += [f"output {read}" for read in self.reads]
        if self.gradient_of is not None:
            order = "first and second gradient" if self.second_gradient else "gradient"
            lines.append(f"{order} of {self.gradient_of} by {', '.join(self.wrt)}")
        if self.in_op_from_graph:
            lines.append("the loop is inside an OpFromGraph")
        if self.batched:
            lines.append(f"vectorised over {', '.join(self.batched)}")
        return "\n".join(lines)


def _slices(name: str, taps: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{name}[t{tap:+d}]" if tap else f"{name}[t]" for tap in taps)


def _part(leaf: str) -> str:
    return leaf.partition("[")[0]


def _dependencies(
    part: Sequence | NonSequence | State | RandomNumbers | Map | InnerLoop,
) -> tuple[set[str], set[str]]:
    """Return the names outside of the loop and the parts of it that ``part`` depends on."""
    match part:
        case State():
            return {part.source}, part.update.parts
        case Map():
            return set(), part.value.parts
        case RandomNumbers():
            return set(), part.mean.parts if part.mean is not None else set()
        case InnerLoop():
            loop = part.loop
            starts = (*loop.sequences, *loop.non_sequences, *loop.states)
            return set(), {_part(start.source) for start in starts}
    return {part.source}, set()
