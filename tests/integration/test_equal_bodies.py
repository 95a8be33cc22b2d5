"""Of loops with equal bodies, a compilation rewrites one body, for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.loop import registered_rewrites
from scanopt_cli.loop.operators import Loop
from scanopt_cli.passes.simplify.simplify import Simplify


def _two_loops(names: tuple[str | None, str | None], second: float) -> tuple[list[Any], list[Any]]:
    """Two loops over rows of their own, of other lengths perhaps, so they are not merged."""
    one, other, x = pt.dvector("one"), pt.dvector("other"), pt.dscalar("x")

    def loop(rows: Any, start: Any, factor: float, name: str | None) -> Any:
        return pytensor.scan(
            lambda row, y: pt.tanh(y * factor + row),
            sequences=[rows],
            outputs_info=[start],
            name=name,
            return_updates=False,
        )

    totals = loop(one, x, 0.5, names[0]).sum(), loop(other, 2 * x, second, names[1]).sum()
    return [one, other, x], list(totals)


@pytest.mark.parametrize("names", [(None, None), ("one", "two")], ids=["no names", "two names"])
@pytest.mark.parametrize(("second", "n_bodies"), [(0.5, 1), (0.25, 2)], ids=["equal", "different"])
def test_equal_bodies_are_rewritten_once(monkeypatch, names, second, n_bodies):
    """By the pass `simplify`, to a fixpoint, and by PyTensor, for the linker."""
    simplified: list[int] = []
    baked: list[Any] = []
    rewritten, rewrite_body = Simplify._rewritten, registered_rewrites._rewrite_body

    def simplify(self: Any, fgraph: Any, **how: bool) -> Any:
        simplified.append(len(fgraph.apply_nodes))
        return rewritten(self, fgraph, **how)

    def bake(linker: Any, op: Any, node: Any, body: Any, *, mode: Any) -> None:
        baked.append(op)
        rewrite_body(linker, op, node, body, mode=mode)

    monkeypatch.setattr(Simplify, "_rewritten", simplify)
    monkeypatch.setattr(registered_rewrites, "_rewrite_body", bake)
    inputs, outputs = _two_loops(names, second)
    with so.enabled(cache=False):
        function = pytensor.function(inputs, outputs, mode="NUMBA")
    loops = [node for node in function.maker.fgraph.toposort() if isinstance(node.op, Loop)]
    assert len(loops) == 2
    assert len(baked) == n_bodies
    # Each form of a body is rewritten once more, which finds that it stays.
    assert len(simplified) == 2 * n_bodies
    values = np.linspace(0, 1, 4), np.linspace(1, 2, 7), 0.3
    expected = pytensor.function(inputs, outputs, mode="FAST_COMPILE")(*values)
    np.testing.assert_allclose(function(*values), expected, rtol=1e-12)
