"""What a finding says is so once compiled, and nothing is found where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.scan.utils import until

from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.mending import mend
from support.graph_building import scan
from support.tiers import deep
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

type Graph = tuple[list[Any], list[Any]]

M = pt.dmatrix("m")
X, Y, V, N = pt.dvector("x"), pt.dvector("y"), pt.dscalar("v"), pt.lscalar("n")
EMPTY = {"x": np.zeros(0), "y": np.ones(2), "v": np.array(1.0), "n": np.array(0)}
RUNNING = ("vm", "NUMBA")


def halves(start: Any = V) -> Any:
    return scan(lambda s: s * 0.5, outputs_info=[start], n_steps=N)


def logs() -> Any:
    return scan(lambda a, s: [s * a, pt.exp(s)], sequences=[X], outputs_info=[V, None])[1]


def stopping() -> Any:
    return scan(lambda s: (s * 0.5, until(s < 0.1)), outputs_info=[V], n_steps=N)


# What reads a last row, and by which linkers an IndexError is lost where there is no step.
LAST_ROWS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a state": (lambda: halves()[-1], RUNNING),
    "a state at n-1": (lambda: halves()[N - 1], RUNNING),
    "the first of reversed rows": (lambda: halves()[::-1][0], RUNNING),
    "an element of a row": (lambda: halves(Y)[-1, 0], RUNNING),
    "a while loop": (lambda: stopping()[-1], RUNNING),
    "an output beside a state": (lambda: logs()[-1], ("NUMBA",)),
    "the last rows": (lambda: halves()[-1:], ()),
    "a map": (lambda: scan(pt.exp, sequences=[X])[-1], ()),
    "a gradient": (lambda: pt.grad(scan(pt.tanh, outputs_info=[V], n_steps=N)[-1], V), ()),
    "a gradient of an element": (
        lambda: pt.grad(scan(pt.tanh, outputs_info=[Y], n_steps=N)[-1, 0], Y),
        (),
    ),
}


def loses_the_error(output: Any, linker: str) -> bool:
    """Whether PyTensor compiles a row out of no steps, where the row as it stands is none."""
    inputs = [X, Y, V, N]

    def raises(mode: Any) -> bool:
        function = pytensor.function(inputs, [output], mode=mode, on_unused_input="ignore")
        try:
            function(*EMPTY.values())
        except IndexError:
            return True
        return False

    return raises(Mode("vm", None)) and not raises(linker if linker == "NUMBA" else "FAST_RUN")


@pytest.mark.parametrize("name", LAST_ROWS)
def test_last_rows_are_found_where_the_error_is_lost(name: str) -> None:
    build, linkers = LAST_ROWS[name]
    findings = check(([X, Y, V, N], [build()]), select=["C002"]).findings
    assert len(findings) == bool(linkers)


@pytest.mark.parametrize("linker", ["vm", *deep("NUMBA")])
@pytest.mark.parametrize("name", LAST_ROWS)
def test_the_error_is_lost_where_it_is_said_to_be(name: str, linker: str) -> None:
    build, linkers = LAST_ROWS[name]
    assert loses_the_error(build(), linker) is (linker in linkers)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("model", [model for model in MODELS if model.order], ids=str)
def test_gradients_of_the_zoo_are_right(model: Model) -> None:
    """Of one model each row is a loop that may have no steps, whatever its gradient says."""
    found = check(outputs_of(model, 1), select=["C001", "C002", "R"]).findings
    assert [finding.loop for finding in found] == (
        ["rows/elements"] if model.name == "rows of elements" else []
    )


def wrapped(*, inline: bool) -> Graph:
    p, q = pt.dscalars("p", "q")
    op = OpFromGraph([p, q], [pt.exp(p)], inline=inline)
    return [V, X], [op(V, X[0])]


def test_what_pytensor_inlines_or_makes_itself_has_no_unused_ends() -> None:
    assert check(wrapped(inline=False), select=["O001"]).findings
    assert not check(wrapped(inline=True), select=["O001"]).findings
    gradient = pt.grad(pt.logsumexp(X * 2), X)
    assert not check(([X], [gradient]), select=["O001"]).findings


def two_draws(combine: Any) -> Graph:
    rng = pytensor.shared(np.random.default_rng(3), name="rng")

    def step(rng: Any) -> Any:
        after, a = pt.random.normal(rng=rng, return_next_rng=True)
        _, b = pt.random.uniform(rng=rng, return_next_rng=True)
        return after, combine(a, b)

    after, draws = scan(step, outputs_info=[rng, None], n_steps=4)
    return [V], [draws, after]


@pytest.mark.parametrize(
    ("combine", "is_found"),
    [
        (lambda a, b: a - b, True),
        (lambda a, b: pt.switch(V > 0, a, a - b), True),
        (lambda a, b: pt.switch(a > 0, a, b), True),
        (lambda a, b: pt.switch(V > 0, a, b), False),
        (lambda a, b: ifelse(V > 0, a, b), False),
        (lambda a, b: a, False),
        (lambda a, b: b, False),
    ],
)
def test_draws_that_are_never_taken_together_share_no_bits(combine: Any, is_found: bool) -> None:
    findings = check(two_draws(combine), select=["R002"]).findings
    assert len(findings) == is_found


MAPS: dict[str, tuple[Callable[[], Any], bool]] = {
    "arithmetic": (lambda: scan(lambda a, b: a * b, sequences=[X, Y]), True),
    "rows that are copied": (lambda: scan(lambda a: a, sequences=[X]), True),
    "products": (lambda: scan(lambda r, w: r @ w, sequences=[M], non_sequences=[M]), True),
    "arithmetic of longer sequences": (
        lambda: scan(lambda a, b: a * b, sequences=[X, Y], n_steps=N),
        False,
    ),
    "products of longer sequences": (
        lambda: scan(lambda r, w: r @ w, sequences=[M], non_sequences=[M], n_steps=N),
        False,
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_marked_as_mended_if_its_fix_mends_it(name: str) -> None:
    build, is_mended = MAPS[name]
    graph = ([X, Y, M, N], [build()])
    (found,) = check(graph, select=["P004"]).findings
    assert found.is_mended_safely == is_mended
    assert bool(mend(graph, select=["P004"]).left.findings) != is_mended
