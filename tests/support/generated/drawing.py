"""Draw the plan of a loop, with the inputs and constants around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from support.generated import plans as plans
from support.generated.arguments import MANY
from support.generated.expressions import (
    CONSTANTS,
    Draw,
    draw_condition,
    draw_expression,
    draw_update,
    reading,
)
from support.generated.plans import Expression, Kind, Role

_SEQUENCE_TAPS = ((0,), (-1,), (1,), (0, 1), (-1, 0, 1))
_STATE_TAPS = ((-1,), (-1,), (-2, -1), (-3, -1))


class Surroundings:
    """The inputs and constants that the outer loop's parts ask for, as they are drawn.

    ``input``, ``constant`` and ``alloc`` make a new one and return its name.
    """

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.inputs: dict[str, plans.Input] = {}
        self.constants: dict[str, plans.Constant | plans.Alloc] = {}

    def input(self, role: Role, kind: Kind, rows: int = 0) -> str:
        name = f"{role.letter}{sum(plan.role is role for plan in self.inputs.values())}"
        self.inputs[name] = plans.Input(name, role, kind, rows)
        return name

    def constant(self, kind: Kind, rows: int = 0, *, ramp: bool = False) -> str:
        name = f"c{len(self.constants)}"
        value = self.draw(st.sampled_from(CONSTANTS[kind]))
        self.constants[name] = plans.Constant(name, kind, value, rows, ramp)
        return name

    def alloc(self, kind: Kind, rows: int | str) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = plans.Alloc(name, kind, self.input(Role.VALUE, kind), rows)
        return name

    def inputs_behind(self, sources: Iterable[str]) -> set[str]:
        """Return the inputs that ``sources``, inputs and constants, come from."""
        plans_behind = {name: self.constants.get(name) for name in sources}
        return {
            plan.source if isinstance(plan, plans.Alloc) else name
            for name, plan in plans_behind.items()
        }

    def widen(self, source: str, taps: Sequence[int]) -> None:
        """Give the sequence input ``source`` the rows that ``taps`` need beyond the steps."""
        plan = self.inputs.get(source)
        if plan is not None and plan.role is Role.SEQUENCE:
            self.inputs[source] = replace(plan, rows=max(plan.rows, _span(taps)))


def one_in(draw: Draw, cases: int) -> bool:
    """Draw True in one of so many cases; shrinks to False."""
    return draw(st.integers(1, cases)) == cases


def _span(taps: Sequence[int]) -> int:
    return max(0, *taps) - min(0, *taps)


def draw_loop(
    draw: Draw,
    surroundings: Surroundings,
    *,
    while_loops: bool,
    nesting: bool,
    generators: bool,
) -> plans.Loop:
    """Draw the outer loop, and into ``surroundings`` what it reads."""
    steps: str | int | None = draw(st.sampled_from(["input", "input", None, None, 3, 2, 1, 0]))
    if steps == "input":
        steps = surroundings.input(Role.STEPS, Kind.INTEGER)
    sequences: list[plans.Sequence] = []
    for number in range(draw(st.integers(1 if steps is None else 0, 3))):
        sequences.append(_sequence(draw, surroundings, f"s{number}", steps, sequences))
    heads = [_state_head(draw, surroundings, f"h{i}") for i in range(draw(st.integers(0, 3)))]
    non_sequences: list[plans.NonSequence] = []
    for number in range(draw(st.integers(0, 2))):
        non_sequences.append(_non_sequence(draw, surroundings, f"w{number}", non_sequences))
    inner: tuple[plans.InnerLoop, ...] = ()
    leaves = _leaves(sequences, heads, non_sequences)
    generator, random = None, ()
    if generators and draw(st.booleans()):
        generator = surroundings.input(Role.GENERATOR, Kind.REAL)
        random = _random_numbers(draw, leaves)
        leaves |= {item.name: item.kind for item in random}
    circle = _circle(draw, surroundings) if one_in(draw, 5) else ()
    if nesting and leaves and one_in(draw, 4):
        inner_steps: int | str = draw(st.sampled_from([2, 3, "input"]))
        if inner_steps == "input":
            source = surroundings.input(Role.INNER_STEPS, Kind.INTEGER)
            non_sequences.append(plans.NonSequence("m", source, Kind.INTEGER))
            inner_steps = "m"
        inner = (_inner_loop(draw, leaves, inner_steps),)
        leaves |= {item.name: item.kind for item in inner}
    inner_results = (plans.Map(item.name, item.kind, reading(item.name)) for item in inner)
    return plans.Loop(
        steps=steps,
        sequences=tuple(sequences),
        non_sequences=tuple(non_sequences),
        inner=inner,
        states=(*_updated(draw, heads, leaves), *circle),
        maps=(*_maps(draw, leaves, "y", at_least=0 if heads else 1), *inner_results),
        until=draw_condition(draw, leaves) if while_loops and one_in(draw, 4) else None,
        go_backwards=draw(st.booleans()),
        generator=generator,
        random=random,
    )


def _random_numbers(draw: Draw, leaves: Mapping[str, Kind]) -> tuple[plans.RandomNumbers, ...]:
    """Draw what random numbers a step draws, some of them with a mean that it computes."""

    def numbers(name: str) -> plans.RandomNumbers:
        kind = draw(st.sampled_from([Kind.REAL, Kind.REAL, Kind.VECTOR]))
        mean = draw_expression(draw, leaves, kind, 1) if one_in(draw, 3) else None
        return plans.RandomNumbers(name, kind, mean)

    return tuple(numbers(f"e{number}") for number in range(draw(st.integers(1, 2))))


def _sequence(
    draw: Draw,
    surroundings: Surroundings,
    name: str,
    steps: str | int | None,
    earlier: Sequence[plans.Sequence],
) -> plans.Sequence:
    repeated = ["same", "shared"] if earlier else []
    style = draw(st.sampled_from(["input", "input", "uniform", "ramp", "alloc", *repeated]))
    if style == "same":
        return replace(draw(st.sampled_from(earlier)), name=name)
    kind = draw(st.sampled_from(Kind))
    longest = MANY + _span((-1, 1))
    if style == "alloc":
        rows = longest if steps is None else steps
        return plans.Sequence(name, surroundings.alloc(kind, rows), kind)
    if style == "shared":
        other = draw(st.sampled_from(earlier))
        source, kind = other.source, other.kind
    elif style == "input":
        source = surroundings.input(Role.SEQUENCE, kind)
    else:
        source = surroundings.constant(kind, longest, ramp=style == "ramp")
    alloc = isinstance(surroundings.constants.get(source), plans.Alloc)
    taps = (0,) if alloc else draw(st.sampled_from(_SEQUENCE_TAPS))
    surroundings.widen(source, taps)
    return plans.Sequence(name, source, kind, taps, draw(st.booleans()))


def _state_head(
    draw: Draw, surroundings: Surroundings, name: str, kinds: Iterable[Kind] = Kind
) -> plans.State:
    """Draw a state without its update, which may read every other part of the loop."""
    kind = draw(st.sampled_from(tuple(kinds)))
    taps = draw(st.sampled_from(_STATE_TAPS))
    rows = -min(taps) if taps != (-1,) else 0
    same = [
        plan.name
        for plan in surroundings.inputs.values()
        if (plan.role, plan.kind, plan.rows) == (Role.VALUE, kind, rows)
    ]
    style = draw(st.sampled_from(["input", "input", "constant", *(["same"] if same else [])]))
    if style == "same":
        source = draw(st.sampled_from(same))
    elif style == "constant":
        source = surroundings.constant(kind, rows)
    else:
        source = surroundings.input(Role.VALUE, kind, rows)
    return plans.State(name, source, kind, taps, Expression("constant", (0,)))


def _circle(draw: Draw, surroundings: Surroundings) -> tuple[plans.State, ...]:
    """Draw two states that only read each other, for no output to read."""
    names = "d0", "d1"
    heads = [_state_head(draw, surroundings, name, (Kind.REAL,)) for name in names]
    return tuple(
        replace(
            head, update=draw_expression(draw, dict.fromkeys(other.slices, Kind.REAL), Kind.REAL)
        )
        for head, other in zip(heads, reversed(heads), strict=True)
    )


def _non_sequence(
    draw: Draw, surroundings: Surroundings, name: str, earlier: Sequence[plans.NonSequence]
) -> plans.NonSequence:
    style = draw(st.sampled_from(["input", "input", "constant", *(["same"] if earlier else [])]))
    if style == "same":
        return replace(draw(st.sampled_from(earlier)), name=name)
    kind = draw(st.sampled_from(Kind))
    if style == "constant":
        return plans.NonSequence(name, surroundings.constant(kind), kind)
    return plans.NonSequence(name, surroundings.input(Role.VALUE, kind), kind)


def _inner_loop(draw: Draw, outside: Mapping[str, Kind], steps: int | str) -> plans.InnerLoop:
    """Draw a loop over values of the surrounding step: vectors are walked through, or states."""
    vectors = [name for name, kind in outside.items() if kind is Kind.VECTOR]
    sequences = [
        plans.Sequence("r", draw(st.sampled_from(vectors)), Kind.REAL)
        for _ in range(draw(st.integers(0, 1)) if vectors else 0)
    ]
    names = st.sampled_from(sorted(outside))
    starts = draw(st.lists(names, min_size=1, max_size=2))
    heads = [
        plans.State(f"z{i}", start, outside[start], (-1,), Expression("constant", (0,)))
        for i, start in enumerate(starts)
    ]
    non_sequences = [
        plans.NonSequence(f"u{i}", name, outside[name])
        for i, name in enumerate(draw(st.lists(names, max_size=2)))
    ]
    leaves = _leaves(sequences, heads, non_sequences)
    loop = plans.Loop(
        steps=steps,
        sequences=tuple(sequences),
        non_sequences=tuple(non_sequences),
        inner=(),
        states=_updated(draw, heads, leaves),
        maps=_maps(draw, leaves, "q", at_least=0),
    )
    style = draw(st.sampled_from(["sum", "last", "first"]))
    result = draw(st.sampled_from(sorted(loop.results)))
    return plans.InnerLoop("inner", plans.Read(style, (result,)), loop, loop.results[result])


def _leaves(
    sequences: Sequence[plans.Sequence],
    states: Sequence[plans.State],
    non_sequences: Sequence[plans.NonSequence],
) -> dict[str, Kind]:
    tapped = {name: item.kind for item in (*sequences, *states) for name in item.slices}
    return tapped | {item.name: item.kind for item in non_sequences}


def _updated(
    draw: Draw, heads: Sequence[plans.State], leaves: Mapping[str, Kind]
) -> tuple[plans.State, ...]:
    return tuple(
        replace(head, update=draw_update(draw, head.slices, head.kind, leaves)) for head in heads
    )


def _maps(
    draw: Draw, leaves: Mapping[str, Kind], letter: str, *, at_least: int
) -> tuple[plans.Map, ...]:
    kinds = draw(st.lists(st.sampled_from(Kind), min_size=at_least, max_size=2))
    return tuple(
        plans.Map(f"{letter}{number}", kind, draw_expression(draw, leaves, kind))
        for number, kind in enumerate(kinds)
    )
