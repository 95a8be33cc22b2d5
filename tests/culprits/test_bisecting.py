"""The rewrite that breaks a graph is found: of passes that are wrong, and of PyTensor's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytensor.tensor as pt
import pytest
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli as so
from scanopt_cli.culprits.bisecting import bisect
from scanopt_cli.culprits.culprit import Maker
from scanopt_cli.culprits.properties import (
    CommandFails,
    CompilingRaises,
    Limits,
    Outcome,
    Property,
    State,
    ValuesDiffer,
)
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.registry import package_of
from scanopt_cli.verification.spawning import Gate
from support.faulty_passes import FAULTY, Crashing, Hungry, Inexact, Raising, SplitTanh
from support.graph_building import scan
from support.tiers import deep

PLAIN = ValuesDiffer(compiled_by="plain")
N_TANHS = 6


def graph_with_tanhs() -> Graph:
    x, w = pt.dscalars("xw")

    def step(x, w):  # type: ignore[no-untyped-def]
        for k in range(N_TANHS):
            x = pt.tanh(x * w + k / 10)
        return x

    return from_io([x, w], [scan(step, outputs_info=[x], non_sequences=[w], n_steps=5)[-1]])


@pytest.fixture(autouse=True)
def _in_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child process raise what a built-in pass raises."""
    monkeypatch.setenv("SCANOPT_STRICT", "1")


@pytest.mark.tiered(every=9)
@pytest.mark.parametrize("faulty", [Inexact(), Crashing(), *deep(Raising(), Hungry())])
def test_a_faulty_pass(faulty: Pass) -> None:
    passes = (*parse("merge-equal,remove-unused"), faulty)
    found = bisect(graph_with_tanhs(), passes, wrong=PLAIN, limits=Limits(memory=4 << 30))
    (culprit,) = found.culprits
    assert (culprit.maker, culprit.name) == (Maker.SCANOPT, faulty.name)
    assert culprit.number == FAULTY
    assert culprit.is_certain
    if isinstance(faulty, Inexact):
        assert culprit.of == N_TANHS
        # Two ends, each twice, and about the logarithm of what is between them.
        assert found.probes <= 4 + 2 + 1 + 3
        (remark,) = culprit.remarks
        assert remark.details["text"] == f"tanh {FAULTY}"
        assert culprit.before is not None
        assert culprit.after is not None
        assert so.diff(culprit.before, culprit.after).changes


@pytest.mark.deep
def test_a_pass_that_raises_and_leaves_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """`optimize` goes on after an error of one of scanopt's own passes; it is found as well."""
    monkeypatch.delenv("SCANOPT_STRICT")
    assert package_of(Raising()) is None
    wrong, limits = PLAIN, Limits()
    (culprit,) = bisect(graph_with_tanhs(), (Raising(),), wrong=wrong, limits=limits).culprits
    assert (culprit.name, culprit.number, culprit.failing) == ("raising", FAULTY, "raising")
    assert "TypeError" in culprit.why
    assert culprit.before is not None
    assert culprit.after is None


@pytest.mark.deep
def test_a_pass_with_two_sets_of_options() -> None:
    """Both are tried, since a graph does not say which of them made it."""

    @dataclass(frozen=True)
    class Sometimes(Inexact):
        is_right: bool = False

        def faulty(self, new: Any) -> Any:
            return new if self.is_right else super().faulty(new)

    passes = (Sometimes(is_right=True), Sometimes())
    graph = graph_with_tanhs()
    assert not bisect(graph, passes[:1], wrong=PLAIN).culprits
    (culprit,) = bisect(graph, passes[::-1], wrong=PLAIN).culprits
    assert culprit.number == FAULTY


def test_twin_a_pass_that_is_right() -> None:
    assert not bisect(graph_with_tanhs(), (SplitTanh(),), wrong=PLAIN).culprits


def reversed_rows() -> Graph:
    """``local_dimshuffle_subtensor`` takes another row."""
    x = pt.dvector("x")
    five = pt.specify_shape(x, (5,))
    return from_io([x], [five[:-2:-1].sum()])


def booleans() -> Graph:
    """``local_add_canonizer`` adds booleans up."""
    x = pt.dscalar("x")
    is_large = pt.gt(abs(x), 0.001)
    return from_io([x], [(1 - is_large) + (1 - is_large)])


@pytest.mark.deep
@pytest.mark.parametrize(
    ("graph", "rewriter"),
    [(booleans, "local_add_canonizer"), (reversed_rows, "local_dimshuffle_subtensor")],
)
def test_a_rewriter_of_pytensor(graph: Callable[[], Graph], rewriter: str) -> None:
    found = bisect(graph(), "none", wrong=ValuesDiffer(compiled_by="vm"))
    (culprit,) = found.culprits
    assert (culprit.maker, culprit.name) == (Maker.PYTENSOR, rewriter)
    assert culprit.position is not None
    assert {"canonicalize", "uncanonicalize"} & {*culprit.within}
    assert culprit.place is not None
    assert "math.py:" in culprit.place or "uncanonicalize.py:" in culprit.place
    assert culprit.before is not None
    assert culprit.after is not None
    assert so.digest(culprit.before) != so.digest(culprit.after)


@pytest.mark.deep
def test_a_command(tmp_path: Path) -> None:
    """A graph with a sinh in it is said to be wrong."""
    script = tmp_path / "check.py"
    script.write_text(
        "import sys\nimport scanopt_cli as so\n"
        "text = so.load(sys.argv[1]).fgraph.dprint(file='str')\n"
        "sys.exit('Sinh' in text)\n"
    )
    command = CommandFails(command=f"{sys.executable} {script} {{}}")
    (culprit,) = bisect(graph_with_tanhs(), (SplitTanh(),), wrong=command).culprits
    assert (culprit.name, culprit.number) == ("split-tanh", 1)


@pytest.mark.parametrize(
    "command", ["true", "no-such-command-there {}", "'unclosed {}"], ids=["place", "none", "quote"]
)
def test_commands_that_cannot_run(command: str) -> None:
    with pytest.raises(ScanoptError, match="--check"):
        bisect(graph_with_tanhs(), (SplitTanh(),), wrong=CommandFails(command=command))


@pytest.mark.deep
def test_compiling_raises() -> None:
    graph = graph_with_tanhs()
    assert not bisect(graph, (SplitTanh(),), wrong=CompilingRaises(compiled_by="vm")).culprits


@pytest.mark.deep
def test_a_rewriter_that_raises() -> None:
    """`scan_push_out_add` counts as the rewrite that breaks it, not the last one before it."""
    a, b, start = pt.dtensor3("a"), pt.dtensor3("b"), pt.dmatrix("start")
    sums = scan(
        lambda p, q, total: pt.add(p, pt.dot(p, q), total), sequences=[a, b], outputs_info=[start]
    )
    graph = from_io([a, b, start], [sums.owner.inputs[0][-1]])  # of the buffer, start included
    wrong = CompilingRaises(compiled_by="vm", error="Assertion")
    (culprit,) = bisect(graph, "none", wrong=wrong).culprits
    assert (culprit.maker, culprit.name) == (Maker.PYTENSOR, "scan_push_out_add")
    assert culprit.number == culprit.of
    assert culprit.is_certain
    assert culprit.node is not None
    assert "Scan{" in culprit.node
    assert culprit.before is not None
    assert culprit.after is None
    other = CompilingRaises(compiled_by="vm", error="no such text")
    with pytest.raises(VerificationError, match="cannot be evaluated: compiling raises Assertion"):
        bisect(graph, "none", wrong=other)


def test_a_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken without any rewrite is none's fault."""
    limits = list[int | None]()

    def gated(_: object, __: object, ___: object, gate: Gate, ____: object) -> Outcome:
        limits.append(gate.most)
        return Outcome(State.BROKEN, mode="vm", n_rewrites=7)

    monkeypatch.setattr(ValuesDiffer, "gated", gated)
    monkeypatch.setattr(ValuesDiffer, "of", lambda *_: Outcome(State.BROKEN))
    (culprit,) = bisect(graph_with_tanhs(), "none", wrong=ValuesDiffer(compiled_by="vm")).culprits
    assert (culprit.name, culprit.number, culprit.is_certain) == ("linker", None, True)
    assert limits == [None, None, 0, 0]


class _Flaky(Property):
    """Broken in every other trial."""

    text = "now and then"

    def __init__(self) -> None:
        self.count = 0

    def of(self, *_: object) -> Outcome:
        self.count += 1
        return Outcome(State.FINE if self.count % 2 else State.BROKEN)


def test_what_is_not_stable_is_noticed() -> None:
    with pytest.raises(VerificationError, match="not stable"):
        bisect(graph_with_tanhs(), (SplitTanh(),), wrong=_Flaky())


def test_what_is_wrong_before_any_rewrite() -> None:
    always = CommandFails(command="test ! -e {}")
    with pytest.raises(VerificationError, match="before any rewrite"):
        bisect(graph_with_tanhs(), (SplitTanh(),), wrong=always)


@pytest.mark.deep
def test_graphs_that_cannot_be_evaluated_are_stepped_over() -> None:
    """Between rewrites 1 and 4, nothing can be said."""

    class _Dark(Property):
        text = "more than four sinh"

        def of(self, graph: Graph, *_: object) -> Outcome:
            count = str(graph.fgraph.dprint(file="str")).count("Sinh")
            if 0 < count < 4:
                return Outcome(State.UNKNOWN)
            return Outcome(State.BROKEN if count else State.FINE)

    (culprit,) = bisect(graph_with_tanhs(), (SplitTanh(),), wrong=_Dark()).culprits
    assert (culprit.since, culprit.number) == (1, 4)
    assert not culprit.is_certain
    assert culprit.before is not None
    assert "Sinh" not in str(culprit.before.fgraph.dprint(file="str"))


@dataclass(frozen=True)
class _Second(SplitTanh):
    """Splits each cosh that the first pass has made."""

    name: ClassVar[str] = "second"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Rewrite one cosh after the other."""
        for node in context.fgraph.toposort():
            if isinstance(node.op, Elemwise) and str(node.op.scalar_op) == "cosh":
                (x,) = node.inputs
                yield Rewrite({node.outputs[0]: (pt.exp(x) + pt.exp(-x)) / 2})


def test_passes_of_which_one_is_to_blame() -> None:
    """What the first one leaves is broken in another way than what the second one makes of it."""

    class _TwoWays(Property):
        text = "sinh, then exp"

        def of(self, graph: Graph, *_: object) -> Outcome:
            text = str(graph.fgraph.dprint(file="str"))
            if "Exp " in text:
                return Outcome(State.BROKEN, "an exp", kinds=("exp",))
            if "Sinh" in text:
                return Outcome(State.BROKEN, "a sinh", kinds=("sinh",))
            return Outcome(State.FINE)

    found = bisect(graph_with_tanhs(), (SplitTanh(), _Second()), wrong=_TwoWays())
    (culprit,) = found.culprits
    assert (culprit.among, culprit.name) == (("split-tanh", "second"), "second")
    assert (culprit.is_certain, culprit.number, culprit.open) == (False, None, "a sinh")
    assert "one of the passes split-tanh, second: an exp" in str(found)


def test_values_differ_by_a_tolerance() -> None:
    """A factor of 1.001 in one of several tanhs is within a tolerance of a tenth."""
    loose = ValuesDiffer(compiled_by="plain", rtol=0.1)
    assert not bisect(graph_with_tanhs(), (Inexact(),), wrong=loose).culprits
