"""What graphs cost: which is faster and by how much, what compiling takes, how they grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scanopt_cli.benchmarking.result import (
    Benchmark,
    Clock,
    Estimate,
    Measured,
    Profile,
)
from scanopt_cli.reports.document import Block, Column, Item, Line, Paragraph, Span, Style
from scanopt_cli.reports.tables import fitting
from scanopt_cli.text import (
    at_place,
    plural,
    size_text,
    three_digits,
    time_text,
    unit_of_time,
)

_MOST_OPERATIONS = 12
_LEAST_SHARE = 0.005


def bench_report(found: Benchmark) -> Iterator[Block]:
    """Yield who is faster, a table of all costs, how they grow, and where the time goes."""
    hint = "; record a call by scanopt capture, or give --arguments" if found.is_drawn else ""
    yield Paragraph([Span(f"arguments: {found.arguments}{hint}", Style.FAINT)])
    for text, style in _verdicts(found):
        yield Paragraph(Span(text, style))
    yield Paragraph()
    if found.grown:
        yield from _growth(found)
    yield from _overview(found)
    yield Paragraph(Span(_how(found), Style.FAINT))
    for note in found.notes:
        yield Item(note, depth=1)
    for one in found.measured:
        if one.profile is not None:
            yield Paragraph()
            yield from _profile(found, one, one.profile)


def in_words(found: Benchmark) -> str:
    """Return who is faster, in one line."""
    verdicts = [text for text, _ in _verdicts(found)]
    if verdicts:
        return "; ".join(verdicts)
    first = found.measured[0]
    return f"{_name(found, first)}: a call takes {_interval(first.costs[-1].seconds(found.clock))}"


def _verdicts(found: Benchmark) -> Iterator[tuple[str, Style]]:
    """Yield how each compares with its reference, on the largest size."""
    for one in found.measured:
        cost = one.costs[-1]
        if cost.ratio is None:
            continue
        name, other = _name(found, one), _name(found, found.reference(one))
        at = "" if cost.size is None else f" at {found.grown[0]} = {cost.size}"
        ratio = cost.ratio
        if ratio.low <= 1 <= ratio.high:
            range_ = f"{three_digits(ratio.low)} to {three_digits(ratio.high)} times as long"
            yield f"{name} and {other}: no difference can be told{at} ({range_})", Style.PLAIN
        elif ratio.value < 1:
            yield (
                f"{name} is {three_digits(1 / ratio.value)} times as fast as {other}{at} "
                f"({three_digits(1 / ratio.high)} to {three_digits(1 / ratio.low)})",
                Style.GOOD,
            )
        else:
            is_bad = one in found.slower
            bound = f"; more than {found.bound:g} times" if is_bad else ""
            yield (
                f"{name} takes {three_digits(ratio.value)} times as long as {other}{at} "
                f"({three_digits(ratio.low)} to {three_digits(ratio.high)}){bound}",
                Style.BAD if is_bad else Style.WARNING,
            )


def _overview(found: Benchmark) -> Iterator[Block]:
    """Yield a line for each graph and mode: a call, its memory, and what compiling takes.

    With growth, calls are in a table of their own.
    """
    rows = []
    for one in found.measured:
        cost = one.costs[-1]
        rows.append(
            (
                _name(found, one),
                _interval(cost.seconds(found.clock)),
                time_text(cost.processor.value if found.clock is Clock.WALL else cost.wall.value),
                "1" if cost.ratio is None else _interval_of(cost.ratio),
                _bytes(cost.memory),
                time_text(one.compilation),
                time_text(one.compilation_processor),
                _bytes(one.compilation_memory),
            )
        )
    other = "processor" if found.clock is Clock.WALL else "wall"
    titles = ("graph", "a call", other, "times as long", "memory")
    compiling = ("first call", "processor", "memory")
    short = [
        fitting(
            [Column("graph"), *(Column(title, is_number=True) for title in titles[1:])],
            [row[:5] for row in rows],
            [
                Item(
                    Span(name, Style.STRONG),
                    notes=[
                        f"a call {call}, {other} {clock}; memory {memory}",
                        f"times as long: {ratio}",
                    ],
                    depth=1,
                )
                for name, call, clock, ratio, memory, *_ in rows
            ],
        ),
        fitting(
            [
                Column("compiled and called once"),
                *(Column(title, is_number=True) for title in ("wall", *compiling[1:])),
            ],
            [(row[0], *row[5:]) for row in rows],
            [
                Item(f"{name}: compiled and called once in {wall}, {processor}, {memory}", depth=1)
                for name, *_, wall, processor, memory in rows
            ],
        ),
    ]
    columns = [
        Column("graph"),
        *(Column(title, is_number=True) for title in (*titles[1:], *compiling)),
    ]
    yield short[1] if found.grown else fitting(columns, rows, short)


def _how(found: Benchmark) -> str:
    calls = min(cost.calls for one in found.measured for cost in one.costs)
    clock = "processor time of all threads" if found.clock is Clock.PROCESSOR else "wall time"
    return (
        f"{clock}: medians, and where they are with 95% confidence, of {calls} calls or more in "
        f"{plural(found.rounds, 'round')} of new processes that take turns; memory: the most that "
        "a call takes beyond what the process has before; first call: compiling, and calling once, "
        "in wall time"
    )


def _growth(found: Benchmark) -> Iterator[Block]:
    """Yield a table with a line for each size of each graph, and how each grows."""
    name = found.grown[0]
    rows: list[Sequence[Line]] = []
    sizes = range(len(found.measured[0].costs))
    for place in sizes:
        for one in found.measured:
            cost = one.costs[place]
            assert cost.size is not None
            seconds = cost.seconds(found.clock)
            rows.append(
                (
                    str(cost.size),
                    _name(found, one),
                    _interval(seconds),
                    time_text(seconds.value / cost.size),
                    "1" if cost.ratio is None else _interval_of(cost.ratio),
                    _bytes(cost.memory),
                )
            )
    titles = ("a call", f"per {name}", "times as long", "memory")
    columns = [
        Column(name, is_number=True),
        Column("graph"),
        *(Column(title, is_number=True) for title in titles),
    ]
    items: list[Block] = [
        Item(
            f"{name} = {size}, {graph}: {call}",
            notes=[f"per {name}: {each}; times as long: {ratio}; memory {memory}"],
            depth=1,
        )
        for size, graph, call, each, ratio, memory in rows
    ]
    yield fitting(columns, rows, items)
    costs = found.measured[0].costs
    for one in found.measured:
        if one.exponent is not None:
            text = (
                f"{_name(found, one)}: from {name} = {costs[-2].size} to {costs[-1].size}, a call "
                f"grows as {name}^{_interval_of(one.exponent)}"
            )
            yield Paragraph(text)
    if len(found.grown) > 1:
        yield Paragraph(Span(f"with {name} grow {', '.join(found.grown[1:])}", Style.FAINT))
    yield Paragraph()


def _profile(found: Benchmark, one: Measured, profile: Profile) -> Iterator[Block]:
    """Yield a line for each loop, one for each of the operations that take most, and the rest."""
    yield Paragraph(
        [Span(_name(found, one), Style.NAME), f": {time_text(profile.seconds)} of a call"]
    )
    whole = max(profile.seconds, 1e-12)
    rows: list[Sequence[Line]] = []
    for loop in profile.loops:
        path = loop.title.split("/")
        within, name = "/".join(path[: loop.depth]), "/".join(path[loop.depth :])
        steps = "" if loop.steps is None else f"{_count(loop.steps)} steps"
        rows.append(
            (f"loop {name}{at_place(loop.place)}", within, steps, *_part(loop.seconds, whole))
        )
        if loop.overhead is not None:
            rows.append(("between operations", loop.title, "", *_part(loop.overhead, whole)))
    shown = [
        operation
        for operation in profile.operations[:_MOST_OPERATIONS]
        if operation.seconds / whole >= _LEAST_SHARE
    ]
    for one_kind in shown:
        times = _count(one_kind.calls)
        part = _part(one_kind.seconds, whole)
        rows.append((one_kind.name, one_kind.within or "", times, *part))
    left = profile.operations[len(shown) :]
    if left:
        text = plural(len(left), "more operation")
        rows.append((text, "", "", *_part(sum(kind.seconds for kind in left), whole)))
    rows.append(("the rest", "", "", *_part(profile.rest, whole)))
    columns = [
        Column("what"),
        Column("in"),
        *(Column(title, is_number=True) for title in ("times a call", "time", "share")),
    ]
    items: list[Block] = [
        Item(what, notes=[f"{seconds}, {share}{f', in {within}' if within else ''}"], depth=1)
        for what, within, _, seconds, share in rows
    ]
    yield fitting(columns, rows, items)
    yield Paragraph(Span(profile.note, Style.FAINT))


def _part(seconds: float, whole: float) -> tuple[str, str]:
    return time_text(seconds), f"{seconds / whole:.0%}"


def _name(found: Benchmark, one: Measured) -> str:
    """Return the graph, with the mode if there are several."""
    several = len({other.mode for other in found.measured}) > 1
    return f"{one.source}, {one.mode}" if several else one.source


def _interval(seconds: Estimate) -> str:
    scale, unit = unit_of_time(seconds.value)
    value, low, high = (
        three_digits(number / scale) for number in (seconds.value, seconds.low, seconds.high)
    )
    return f"{value} {unit} ({low} to {high})"


def _interval_of(ratio: Estimate) -> str:
    return f"{three_digits(ratio.value)} ({three_digits(ratio.low)} to {three_digits(ratio.high)})"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.2g}"


def _bytes(count: int | None) -> str:
    return "?" if count is None else size_text(str(count))
