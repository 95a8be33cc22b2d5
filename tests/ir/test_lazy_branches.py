"""Conditionals of one condition become one where a linker would compute what they share."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.conditional.op import IfElse, ifelse
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.lazy_branches import merge_conditionals

x = pt.dmatrix("x")
n = pt.lscalar("n")
is_positive = pt.gt(n, 0)
inverse = pt.linalg.inv(x)
NUMBA = get_mode("NUMBA")


def either(value: Any, condition: Any = is_positive) -> Any:
    return ifelse(condition, value, pt.zeros(()))


total = either(inverse.sum())


def left(outputs: list[Any], mode: Mode = NUMBA) -> int:
    fgraph = FunctionGraph([x, n], outputs, clone=False)
    merge_conditionals(fgraph, mode)
    fgraph.check_integrity()
    return sum(isinstance(node.op, IfElse) for node in fgraph.apply_nodes)


def test_what_two_read_is_read_by_one() -> None:
    assert left([total * 2, either(inverse[0, 0]) + 1, either(inverse[-1, -1])]) == 1


@pytest.mark.parametrize(
    "outputs",
    [
        [either(inverse.sum()), either(pt.exp(x).sum())],
        [either(inverse.sum()), either(inverse.sum() + 1, pt.gt(n, 1))],
        [total, either(inverse[0, 0] * total)],
        [either(inverse.sum()), inverse[0, 0] + either(pt.exp(x).sum())],
        [either(inverse.sum()), ifelse(pt.lt(n, 9), either(inverse[0, 0]), pt.ones(()))],
    ],
    ids=["nothing shared", "two conditions", "one reads the other", "no branch", "in a branch"],
)
def test_others_stay(outputs: list[Any]) -> None:
    fgraph = FunctionGraph([x, n], outputs, clone=True)
    before = sum(isinstance(node.op, IfElse) for node in fgraph.apply_nodes)
    assert left(outputs) == before


def test_the_virtual_machine_computes_one_branch() -> None:
    assert left([total, either(inverse[0, 0])], Mode("vm", "fast_run")) == 2
