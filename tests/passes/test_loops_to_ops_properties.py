"""`loops-to-ops` on generated loops of several states: plain and compiled values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor.tensor as pt
from hypothesis import given, settings
from hypothesis import strategies as st
from test_loops_to_ops import h, m, u, v, values, x

from scanopt_cli.ir.graph import Graph
from support.compiled_ways import VM
from support.graph_building import (
    graph_of,
    scan,
)
from support.needless_loops import assert_compiled_values_stay, assert_values_stay
from support.tiers import examples

STEPS: dict[str, Callable[..., Any]] = {
    "sum": lambda a, s: s + a,
    "difference": lambda a, s: s - a,
    "product": lambda a, s: s * a,
    "latest": lambda a, s: a,
    "steady": lambda a, s: s,
    "recurrence": lambda a, s: pt.tanh(s) + a,
}
TERMS: dict[str, Callable[..., Any]] = {
    "row": lambda a, b: a,
    "cheap": lambda a, b: a * b + 1,
    "slow": lambda a, b: pt.exp(-a * a) - b,
    "cast": lambda a, b: pt.switch(a > b, a, 0.5),
}


@st.composite
def programs(draw: Any) -> Graph:
    """Loops of several states, of which some need a loop."""
    is_vector = draw(st.booleans())
    kinds = draw(
        st.lists(
            st.tuples(
                st.sampled_from(list(STEPS)), st.sampled_from(list(TERMS)), st.integers(-1, 2)
            ),
            min_size=1,
            max_size=3,
        )
    )
    starts = [h if is_vector else x for _ in kinds]
    sequences = [m, m[::-1]] if is_vector else [v, u]

    def step(a: Any, b: Any, *states: Any) -> Any:
        found = []
        for place, (how, term, other) in enumerate(kinds):
            value = TERMS[term](a, b)
            if 0 <= other < place:
                value = value * 0.5 + states[other]
            found.append(STEPS[how](value, states[place]))
        return [*found, TERMS[kinds[0][1]](a, b) * states[-1]]

    rows = scan(step, sequences=sequences, outputs_info=[*starts, None])
    reads = draw(
        st.lists(st.sampled_from(["whole", "last", "none"]), min_size=len(rows), max_size=len(rows))
    )
    outputs = [
        one if read == "whole" else one[-1]
        for one, read in zip(rows, reads, strict=True)
        if read != "none"
    ]
    if draw(st.booleans()) and outputs:
        total = sum(pt.sum(pt.sin(one)) for one in outputs)
        wrt = m if is_vector else sequences[0]
        outputs.append(pt.grad(total, wrt, disconnected_inputs="ignore"))
    return graph_of(*(outputs or rows))


@settings(max_examples=examples(25, 150))
@given(graph=programs(), steps=st.integers(1, 4))
def test_generated_loops_keep_their_values(graph: Graph, steps: int) -> None:
    assert_values_stay(graph, values(steps))


@settings(max_examples=examples(3, 25))
@given(graph=programs())
def test_generated_loops_keep_their_values_compiled(graph: Graph) -> None:
    assert_compiled_values_stay(graph, values(3), VM)
