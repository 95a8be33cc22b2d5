"""Scans become loops in `enabled`, by the linkers that run loops faster."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import function
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.scan.op import Scan

import scanopt_cli as so
from scanopt_cli import loop
from scanopt_cli.integration.compilation.compilation_stages import CompilationStage
from scanopt_cli.integration.compilation.stage_passes import passes_of
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop import Loop, TracedLoop
from scanopt_cli.passes.push_out.push_out import PushOut
from scanopt_cli.pipeline.contract import CompilationTarget, Pass, PassContext, Rewrite
from scanopt_cli.pipeline.grammar import parse
from support.compiled_gradients import ARGUMENTS, counts, growth
from support.evaluating import assert_same_outcomes
from support.graph_building import scan
from support.tiers import deep

VM = Mode("vm", "fast_run")
LINKERS = [
    pytest.param("NUMBA", id="numba"),
    pytest.param("JAX", id="jax", marks=pytest.mark.jax),
]


def loops_of(compiled: Function) -> list[type]:
    ops = [node.op for node in walk(compiled.maker.fgraph)]
    return [type(op) for op in ops if isinstance(op, Loop | TracedLoop)]


@pytest.mark.parametrize("mode", LINKERS)
@pytest.mark.parametrize("enables", [True, *deep(False)], ids=["enabled", "including"])
def test_no_scan_is_left(mode: str, enables: bool) -> None:
    x = pt.dscalar("x")
    ys = scan(lambda y: pt.cos(y), outputs_info=[x], n_steps=6)
    outputs = [ys, ys[-1], pt.grad((ys**2).sum(), x)]
    expected = function([x], outputs, mode="FAST_COMPILE")(0.5)
    if enables:
        with so.enabled() as done:
            compiled = function([x], outputs, mode=mode)
        assert "scan-to-loop" in [run.name for run in done.compilations[0].passes if run.changed]
    else:
        compiled = function([x], outputs, mode=get_mode(mode).including("scanopt"))
    assert (counts(compiled).scans, len(loops_of(compiled))) == (0, 2)
    assert_same_outcomes([np.asarray(v) for v in compiled(0.5)], expected, rtol=1e-12)


def test_scans_stay_in_python(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "scanopt_cli.compiling"), so.enabled():
        compiled = function(*growth(), mode=VM)
    assert (counts(compiled).scans, loops_of(compiled)) == (2, [])
    left = [r.getMessage() for r in caplog.records if r.getMessage().startswith("scan-to-loop")]
    assert len(left) == 2
    assert all("VMLinker" in message for message in left)


def test_what_is_cheap_stays_in_loops_that_numba_compiles() -> None:
    for name, is_cheap in (("NUMBA", False), ("JAX", False), ("CVM", True), (VM, True)):
        passes = passes_of(CompilationStage.LOOPS, parse("loop"), get_mode(name))
        (push_out,) = (item for item in passes if isinstance(item, PushOut))
        assert push_out.cheap is is_cheap


@pytest.mark.parametrize("mode", ["NUMBA", "CVM", VM])
@pytest.mark.parametrize("preset", ["default", "grad"])
def test_what_is_cheap_leaves_scans_that_stay(preset: str, mode: Any) -> None:
    """As by PyTensor's own rewriter, whatever the pipeline moves before."""
    passes = passes_of(CompilationStage.LOOPS, parse(preset), get_mode(mode))
    *_, last = (item for item in passes if isinstance(item, PushOut))
    assert last.cheap
    x, y, h = pt.dmatrix("x"), pt.dmatrix("y"), pt.dvector("h")
    states = scan(lambda a, b, s: pt.tanh(s + a * b), sequences=[x, y], outputs_info=[h])
    with so.enabled(preset):
        compiled = function([x, y, h], states[-1], mode=mode)
    (loop,) = (node for node in compiled.maker.fgraph.apply_nodes if isinstance(node.op, Scan))
    assert loop.op.info.n_seqs == 1


@dataclass(frozen=True)
class OfAPackage(Pass):
    """Says itself what it does in a compilation."""

    name: ClassVar[str] = "of-a-package"
    repeats: ClassVar[bool] = True

    linker: str = "any"

    def adapted(self, target: CompilationTarget) -> Self:
        return replace(self, linker=target.linker)

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        yield from ()


def test_a_pass_says_in_which_stages_it_runs_and_how() -> None:
    pipeline = (OfAPackage(), *parse("merge-equal,save-mem"))
    names = {}
    for stage in CompilationStage:
        passes = passes_of(stage, pipeline, get_mode("NUMBA"))
        assert OfAPackage("numba") in passes
        names[stage] = [item.name for item in passes]
    own = ["push-out-sums", "factor-once", "push-out"]
    assert names[CompilationStage.LOOPS] == ["of-a-package", "merge-equal", *own]
    assert names[CompilationStage.TRIMS] == ["of-a-package", "save-mem", "compile-safe"]


def test_a_linker_that_is_named_counts() -> None:
    with so.enabled("scan-to-loop{linker=c}"):
        compiled = function(*growth(), mode=VM)
    assert (counts(compiled).scans, loops_of(compiled)) == (0, [Loop, Loop])
    assert_same_outcomes(compiled(*ARGUMENTS), function(*growth(), mode=VM)(*ARGUMENTS), rtol=1e-12)


def test_loops_of_the_user_are_rewritten_too() -> None:
    m, x = pt.tensor("m", shape=(2, 2)), pt.tensor("x", shape=(2,))
    last, _ = loop.scan(lambda v, _, m: (m @ v, v), x, pt.arange(3.0), m)
    arguments = [np.array([[0.5, 0.1], [0.2, 0.7]]), np.ones(2)]
    with so.enabled() as done:
        compiled = function([m, x], last, mode=VM)
    changed = [run.name for run in done.compilations[0].passes if run.changed]
    assert changed[-1] == "unroll-small"
    expected = np.linalg.matrix_power(arguments[0], 3) @ arguments[1]
    np.testing.assert_allclose(compiled(*arguments), expected, rtol=1e-12)
