"""Every model of the zoo computes the same as TracedLoops, and as Scans again.

Some models are in the quick tier; in the deep one are all, by one way, at their highest order. All
by every way, and by Numba: ``pytest -m "numba_zoo or deep" tests/zoo``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytensor import function
from pytensor.compile.mode import Mode
from test_zoo_compiled import CASES, assert_as_wanted, check, is_chosen

from support.compiled_ways import LOOPS, NUMBA, VM, optimized_by
from support.zoo.model import Model, derivative_of, outputs_of

SAVED = "optimize -p loop"
ENABLED = "enabled('loop')"


def _by_the_virtual_machine() -> Iterator[object]:
    for case in CASES:
        model, order = case.values
        for way in LOOPS:
            is_deep = is_chosen(model, order) or (way == SAVED and order == model.order)
            is_quick = is_chosen(model, order) and way == SAVED
            marks = () if is_quick else (pytest.mark.deep if is_deep else pytest.mark.numba_zoo)
            yield pytest.param(model, order, way, marks=marks, id=f"{case.id}-{way}")


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize(("model", "order", "way"), [*_by_the_virtual_machine()])
def test_in_the_virtual_machine(model: Model, order: int, way: str) -> None:
    check(model, order, way, VM)


def _by_numba() -> Iterator[object]:
    for case in CASES:
        mark = pytest.mark.deep if is_chosen(*case.values) else pytest.mark.numba_zoo
        for way in (SAVED, ENABLED):
            yield pytest.param(*case.values, way, marks=mark, id=f"{case.id}-{way}")


@pytest.mark.parametrize(("model", "order", "way"), [*_by_numba()])
def test_in_numba(model: Model, order: int, way: str) -> None:
    check(model, order, way, NUMBA)


def _derivatives() -> Iterator[object]:
    for case in CASES:
        model, order = case.values
        if order:
            for mode, name in ((VM, "vm"), (NUMBA, "numba")):
                is_deep = is_chosen(model, order) or (name == "vm" and order == model.order)
                mark = pytest.mark.deep if is_deep else pytest.mark.numba_zoo
                yield pytest.param(model, order, mode, marks=mark, id=f"{case.id}-{name}")


@pytest.mark.parametrize(("model", "order", "mode"), [*_derivatives()])
def test_derivatives_of_loops(model: Model, order: int, mode: Mode) -> None:
    graph = optimized_by(*outputs_of(model), "scan-to-loop", "trace-to-last")
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    made = derivative_of(model, inputs, outputs, order)
    compiled = function(inputs, made, mode=mode, on_unused_input="ignore")
    assert_as_wanted(compiled, model, order)
