"""Compile a graph with scanopt in every way there is, and compare the values."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.math import AlgebraicCanonizer

import scanopt_cli as so
from scanopt_cli.errors import PassError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.grammar import PRESETS
from support.evaluating import PLAIN, has_unknown_shape
from support.generated.arguments import Value
from support.tiers import IS_DEEP, deep

# Without fusion: in Python, PyTensor 3.3.7 computes a fused reciprocal in single precision. Without
# what it calls unsafe itself: leaving out draws that nobody reads, and the generator as it was.
VM = Mode("vm", "fast_run").excluding("fusion", "random_unsafe")
NUMBA = get_mode("NUMBA").excluding("random_unsafe")
BACKENDS = (VM, NUMBA) if IS_DEEP else (VM,)
"""What tests that are ``tiered`` compile for: in the deep tier for Numba too, which is slow."""

type Function = Callable[..., list[Any]]
type Way = Callable[[Sequence[Variable], Sequence[Variable], Mode], Function]


def compiled(inputs: Sequence[Variable], outputs: Sequence[Variable], mode: Mode) -> Function:
    """What PyTensor compiles from the graph as it is."""
    return pytensor.function(list(inputs), list(outputs), mode=mode, on_unused_input="ignore")


def optimized_by(inputs: Sequence[Variable], outputs: Sequence[Variable], *pipelines: str) -> Graph:
    """What pipelines make of a graph, one after the other."""
    graph = from_io(inputs, outputs)
    for pipeline in pipelines:
        graph = so.optimize(graph, pipeline).graph
    return graph


def saved(*pipelines: str) -> Way:
    """What PyTensor compiles from the graph as pipelines leave it."""

    def compile_it(inputs: Any, outputs: Any, mode: Mode) -> Function:
        graph = optimized_by(inputs, outputs, *pipelines)
        return compiled(graph.inputs, graph.outputs, mode)

    return compile_it


def _enabled(preset: str) -> Way:
    def compile_it(inputs: Any, outputs: Any, mode: Mode) -> Function:
        with so.enabled(preset):
            return compiled(inputs, outputs, mode)

    return compile_it


def _including(inputs: Any, outputs: Any, mode: Mode) -> Function:
    return compiled(inputs, outputs, mode.including("scanopt"))


WAYS: dict[str, Way] = {
    "optimize -p default": saved("default"),
    "optimize -p grad": saved("grad"),
    "enabled('default')": _enabled("default"),
    "enabled('grad')": _enabled("grad"),
    "including": _including,
}
LOOPS: dict[str, Way] = {
    "loops": saved("scan-to-loop"),
    "optimize -p loop": saved("loop"),
    # As by Numba: by the virtual machine without C, Scans stay.
    "enabled('loop')": _enabled(PRESETS["loop"].replace("to-loop", "to-loop{linker=numba}")),
    "there and back": saved("scan-to-loop", "loop-to-scan"),
}
EVERY_WAY = {**WAYS, **LOOPS}
BY_TIER = (*WAYS, *deep("optimize -p loop", "enabled('loop')", "there and back"))
"""The names of most ways, for parametrize; those by loops are in the deep tier."""


@contextmanager
def right_sums() -> Iterator[None]:
    """Keep PyTensor from one mistake that has nothing to do with loops.

    Its canonizers make ``2 - (b + b)`` of ``(1 - b) + (1 - b)``, but the sum of two booleans is a
    boolean. Derivatives of minima and maxima have such sums.
    """
    original = AlgebraicCanonizer.transform

    def transform(self: Any, fgraph: Any, node: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(node.op, Elemwise):
            terms = chain.from_iterable(self.get_num_denum(node.outputs[0]))
            if any(term.type.dtype == "bool" for term in terms):
                return False
        return original(self, fgraph, node, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AlgebraicCanonizer, "transform", transform)
        yield


@contextmanager
def _errors() -> Iterator[list[str]]:
    """What goes wrong in scanopt while PyTensor compiles, which logs it and goes on without."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            lines = [line for line in text.splitlines() if "scanopt_cli" in line]
            # That PyTensor cannot fold what raises passes through the bound on folding.
            if any("ir/folding.py" not in line for line in lines):
                found.append(text)

    handler, logger = Handler(), logging.getLogger("pytensor")
    handlers, logger.handlers = logger.handlers, [handler]
    try:
        yield found
    finally:
        logger.handlers = handlers


def _is_of_folding(error: BaseException) -> bool:
    """Whether an error comes from a constant that PyTensor computes when it compiles."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name == "unconditional_constant_folding" for frame in frames)


def assert_right(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    arguments: Sequence[Sequence[Value]],
    way: Way,
    mode: Mode = VM,
) -> None:
    """Check that what ``way`` computes is what the graph computes as it stands.

    Where that raises, or runs into numbers that rewriting may change, nothing is compared. A graph
    that always raises may raise when PyTensor compiles it, which folds its constants.
    """
    cases = list(plain_values(inputs, outputs, arguments))
    try:
        with _errors() as errors:
            function = way(inputs, outputs, mode)
        assert not errors, "\n".join(errors)
    except (PassError, AssertionError) as error:
        # In a process with many graphs, PyTensor may have taken -0.0 for 0.0 in a body; scanopt
        # tells, and leaves the graph alone.
        if "PyTensor confuses" in str(error) or (not cases and _is_of_folding(error)):
            return
        raise
    for values, wanted in cases:
        with np.errstate(all="ignore"):
            got = function(*deepcopy(list(values)))
        for position, (right, value) in enumerate(zip(wanted, got, strict=True)):
            where = f"output {position} of {values}: expected {right!r}, got {value!r}"
            if has_unknown_shape(right, value):
                continue  # as TracedLoops know it, and the Ops that presets put in place of a loop
            assert_close(right, value, where)


def assert_close(wanted: Any, got: Any, where: str = "") -> None:
    """Check dtype, shape and values, within what the order of sums changes."""
    if isinstance(wanted, np.random.Generator):
        assert wanted.bit_generator.state == got.bit_generator.state, where
        return
    wanted, got = np.asarray(wanted), np.asarray(got)
    assert wanted.dtype == got.dtype, where
    if wanted.size == got.size == 0:
        return
    assert wanted.shape == got.shape, where
    if np.isfinite(wanted).all():
        scale = max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-9 * scale, err_msg=where)


def plain_values(
    inputs: Sequence[Variable], outputs: Sequence[Variable], arguments: Sequence[Sequence[Value]]
) -> Iterator[tuple[Sequence[Value], list[Any]]]:
    """Yield the arguments without NaN for which the graph as it stands has values, with these."""
    function = compiled(inputs, outputs, PLAIN)
    for values in arguments:
        if all(np.isfinite(v).all() for v in values if isinstance(v, np.ndarray)):
            try:
                with np.errstate(all="ignore"):
                    yield values, deepcopy(function(*deepcopy(list(values))))
            except Exception:
                continue
