"""clean-slices on long chains: how often a rule is tried must grow with the chain, not faster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import walk_toposort

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.passes.clean_slices import clean_slices
from scanopt_cli.passes.clean_slices.clean_slices import CleanSlices
from scanopt_cli.pipeline.runner import run_pipeline
from support.graph_building import graph_of, power
from support.slicing import N, five

pytestmark = pytest.mark.deep


def writes_and_reversals(links: int) -> Any:
    """Each link reads a row of the link before."""
    rows: Any = pt.vector("x", shape=(50,), dtype="float64")
    for place in range(links):
        rows = rows[place % 50].set(rows[0])[::-1]
    return rows


def slices_of_slices(links: int) -> Any:
    rows: Any = pt.vector("x", shape=(2 * links + 5,), dtype="float64")
    for _ in range(links):
        rows = rows[1:][::-1]
    return rows


def writes_into_zeros(links: int) -> Any:
    _, ys = power(N)
    for place in range(links):
        ys = pt.zeros((N + place + 1,))[1:].inc(ys)[::-1]
    return ys


def rows_of_zeros(links: int) -> Any:
    rows: Any = pt.zeros((5,))
    for place in range(links):
        rows = rows[place % 5].inc(pt.dscalar("v") * place)[::-1]
    return rows


def loops_in_a_row(links: int) -> Any:
    """Each loop starts from the last row of the one before, which is there only if it succeeds."""
    last: Any = pt.dscalar("x")
    for _ in range(links):
        rows = pytensor.scan(lambda x: x * 2, outputs_info=[last], n_steps=N, return_updates=False)
        last = rows[-1]
    return last


def nothing_to_do(links: int) -> Any:
    rows: Any = five()
    for place in range(links):
        rows = pt.exp(rows[place % 5 :: 2].sum() + rows)
    return rows


@pytest.mark.parametrize(
    "chain",
    [
        writes_and_reversals,
        slices_of_slices,
        writes_into_zeros,
        rows_of_zeros,
        loops_in_a_row,
        nothing_to_do,
    ],
)
def test_work_grows_with_the_chain(chain, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (work(chain(links), monkeypatch) for links in (20, 80))
    for what, count in many.items():
        assert count <= 6 * few[what] + 200, (what, few, many)


def work(output: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often rules are tried, variables visited, and lengths compared that were not before."""
    done: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            done[name] += 1
            return function(*arguments)

        return counted

    def visiting(*arguments: Any) -> list[Any]:
        found = list(walk_toposort(*arguments))
        done["visited"] += len(found)
        return found

    rules = tuple((code, counting("rules", rule)) for code, rule in clean_slices._RULES)
    with monkeypatch.context() as patch:
        patch.setattr(clean_slices, "_RULES", rules)
        patch.setattr(clean_slices, "walk_toposort", visiting)
        patch.setattr(Lengths, "_provably_le", counting("compared", Lengths._provably_le))
        run_pipeline(graph_of(output).copy().fgraph, [CleanSlices()])
    assert done
    return done
