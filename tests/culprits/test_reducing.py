"""Graphs that are broken become small ones that are broken in the same way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.scan.op import Scan

import scanopt_cli as so
from scanopt_cli.culprits.properties import (
    CommandFails,
    Limits,
    Outcome,
    Property,
    State,
    ValuesDiffer,
)
from scanopt_cli.culprits.reducing import reduce
from scanopt_cli.culprits.reductions import REDUCTIONS, size
from scanopt_cli.errors import ScanoptError, VerificationError
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import walk
from support.faulty_passes import FAULTY, Inexact
from support.graph_building import scan
from support.tiers import deep

PLAIN = ValuesDiffer(compiled_by="plain")


class Has(Property):
    """A graph has an Op that prints as a text."""

    def __init__(self, what: str, least: int = 1) -> None:
        self.what, self.least = what, least

    @property
    def text(self) -> str:
        return f"has {self.what}"

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        del original, limits
        count = sum(str(node.op) == self.what for node in walk(graph.fgraph))
        return Outcome(State.BROKEN if count >= self.least else State.FINE)


def large_graph() -> Graph:
    """Two loops, one in the other, and what is around them; a cosine is in the inner one."""
    x, v, w = pt.dscalar("x"), pt.dvector("v"), pt.dscalar("w")

    def inner(y, w):  # type: ignore[no-untyped-def]
        return pt.cos(y * w) + pt.exp(-y)

    def outer(s, y, z, w):  # type: ignore[no-untyped-def]
        last = scan(inner, outputs_info=[y], non_sequences=[w], n_steps=3)[-1]
        return last + s, z * pt.tanh(s)

    ys, zs = scan(outer, sequences=[v], outputs_info=[x, x + 1], non_sequences=[w])
    return from_io([x, v, w], [ys[-1] * 2, zs.sum(), pt.exp(v).sum()])


def test_to_a_local_minimum() -> None:
    found = reduce(large_graph(), wrong=Has("Cos"))
    assert found.is_minimal
    assert found.after <= 4
    assert found.before > 25
    # No candidate is smaller and still has it.
    for reduction in REDUCTIONS:
        for candidate in reduction(found.graph):
            try:
                smaller = candidate()
            except Exception:  # what cannot be made is no candidate
                continue
            if smaller is not None and size(smaller) < size(found.graph):
                assert Has("Cos").of(smaller, smaller, Limits()).state is State.FINE


def test_the_same_each_time_and_in_two_parts() -> None:
    one, other = (reduce(large_graph(), wrong=Has("Tanh")) for _ in range(2))
    assert so.digest(one.graph) == so.digest(other.graph)
    seen: list[Graph] = []
    part = reduce(large_graph(), wrong=Has("Tanh"), most=3, found=seen.append)
    assert not part.is_minimal
    assert part.tried == 3
    rest = reduce(seen[-1], wrong=Has("Tanh"))
    assert size(rest.graph) == size(one.graph)


class Interrupted(Has):
    """Somebody presses Ctrl-C while the graph of a number is looked at."""

    def __init__(self, what: str, number: int | None = None) -> None:
        super().__init__(what)
        self.number, self.count = number, 0

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        if self.count == self.number:
            raise KeyboardInterrupt
        self.count += 1
        return super().of(graph, original, limits)


@pytest.mark.parametrize("number", [3, 11, *deep(2, 5, 8, 15, 20)])
def test_goes_on_where_it_was_interrupted(number: int, tmp_path: Path) -> None:
    """The same graphs as without an interrupt, each looked at once; but the first, twice a call."""
    whole = Interrupted("Tanh")
    wanted = reduce(large_graph(), wrong=whole)
    tried, seen = tmp_path / "tried", list[Graph]()
    first, second = Interrupted("Tanh", number), Interrupted("Tanh")
    with pytest.raises(KeyboardInterrupt):
        reduce(large_graph(), wrong=first, tried=tried, found=seen.append)
    assert tried.exists() == (number > 2)
    before = len(seen)
    found = reduce(large_graph(), wrong=second, tried=tried, found=seen.append)
    assert not tried.exists()
    assert first.count + second.count == whole.count + 2
    assert (found.tried, found.kept, found.remembered) == (wanted.tried, wanted.kept, number - 2)
    assert so.digest(found.graph) == so.digest(wanted.graph) == so.digest(seen[-1])
    # Of what was found before, only the last graph is told of again.
    assert wanted.kept <= len(seen) <= wanted.kept + (before > 0)


def test_goes_on_in_parts(tmp_path: Path) -> None:
    wanted = reduce(large_graph(), wrong=Has("Cos"))
    parts = 1
    while not (
        part := reduce(large_graph(), wrong=Has("Cos"), most=4, tried=tmp_path / "tried")
    ).is_minimal:
        assert part.tried == 4 * parts
        parts += 1
    assert parts >= wanted.tried // 4
    assert so.digest(part.graph) == so.digest(wanted.graph)


def test_a_line_that_an_interrupt_cut_off(tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    reduce(large_graph(), wrong=Has("Cos"), most=5, tried=tried)
    whole = tried.read_bytes()
    tried.write_bytes(whole[:-9])
    part = reduce(large_graph(), wrong=Has("Cos"), most=1, tried=tried)
    assert (part.remembered, part.tried) == (4, 5)
    assert tried.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_text("my notes"), "is in the way; move it away"),
        (lambda path: path.write_bytes(b"\0\xff"), "is in the way; move it away"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read: Is a directory"),
        (lambda path: None, "is what another reduction has tried; delete it to begin anew"),
    ],
    ids=["text", "bytes", "directory", "other"],
)
def test_files_of_something_else(
    change: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    tried = tmp_path / "tried"
    reduce(large_graph(), wrong=Has("Tanh"), most=1, tried=tried)
    change(tried)
    before = tried.read_bytes() if tried.is_file() else None
    with pytest.raises(ScanoptError, match=message):
        reduce(large_graph(), wrong=Has("Cos"), tried=tried)
    assert (tried.read_bytes() if tried.is_file() else None) == before


def test_twin_broken_in_another_way() -> None:
    """Without the cosine, the graph would raise another error."""

    class _Raises(Has):
        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            has_it = super().of(graph, original, limits).state is State.BROKEN
            return Outcome(State.BROKEN, kinds=("cosine" if has_it else "other",))

    found = reduce(large_graph(), wrong=_Raises("Cos"))
    assert "Cos" in [str(node.op) for node in walk(found.graph.fgraph)]


def long_inputs() -> Graph:
    """Two arrays of one length, one of another, and a count."""
    v, w, r = (pt.tensor(name, shape=(shape,)) for name, shape in (("v", 9), ("w", 9), ("r", None)))
    n = pt.lscalar("n")
    graph = from_io([v, w, r, n], [pt.cos(v * w).sum() + r.sum() * n])
    call = (np.arange(9.0), np.arange(9.0), np.arange(12.0), np.int64(12))
    return Graph(fgraph=graph.fgraph, recorded=(call,))


def test_shorter_inputs() -> None:
    """The recorded call must stay, and of the vectors two entries, one of them a 1."""

    class _Long(Has):
        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            is_long = all(np.size(value) >= 2 for call in graph.recorded for value in call[:2])
            if not is_long or not graph.recorded or len(graph.inputs) < 2:
                return Outcome(State.FINE)
            return super().of(graph, original, limits)

    found = reduce(long_inputs(), wrong=_Long("Cos"))
    assert [v.type.shape for v in found.graph.inputs] == [(2,), (2,)]
    assert [value.tolist() for value in found.graph.recorded[0]] == [[1, 1], [1, 1]]
    assert size(found.graph)[-4:] == (4, 4, 0, 0)


def test_whole_numbers() -> None:
    """Ones are not broken, nor is a number alone; 1 and 2 are."""

    class _Rising(Has):
        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            values = [value for call in graph.recorded for value in call]
            if not any(np.size(value) > 1 and np.all(np.diff(value) > 0) for value in values):
                return Outcome(State.FINE)
            return super().of(graph, original, limits)

    v = pt.dvector("v")
    for values in ([0.25, 0.5, 1.75], [-1.5, 0.25]):
        graph = from_io([v], [pt.cos(v)])
        graph = Graph(fgraph=graph.fgraph, recorded=((np.array(values),),))
        ((kept,),) = reduce(graph, wrong=_Rising("Cos")).graph.recorded
        assert kept.tolist() == [1.0, 2.0]


class HasScan(Property):
    """A graph has a Scan, of which memory is freed or is not, if that matters."""

    text = "has a Scan"

    def __init__(self, frees: bool | None = None) -> None:
        self.frees = frees

    def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
        del original, limits
        scans = [node.op for node in walk(graph.fgraph) if isinstance(node.op, Scan)]
        is_broken = any(self.frees in (None, op.allow_gc) for op in scans)
        return Outcome(State.BROKEN if is_broken else State.FINE)


def test_settings_of_scans_that_do_not_matter() -> None:
    start, n = pt.dscalar("start"), pt.lscalar("n")
    trace = scan(lambda s: s * 2, outputs_info=[start], n_steps=n, name="doubled")
    trimmed = so.optimize(from_io([start, n], [trace[-1]]), passes="save-mem").graph
    assert isinstance(trimmed, Graph)
    for frees in (None, False):
        small = reduce(trimmed, wrong=HasScan(frees))
        text = so.to_python(small.graph).text
        assert "strict" not in text
        assert "name=" not in text
        assert frees is False or "allow_gc" not in text


def test_lengths_that_a_body_has_too() -> None:
    """An OpFromGraph wants nine entries, until it is inlined."""
    inner, v = pt.tensor("inner", shape=(9,)), pt.tensor("v", shape=(9,))
    graph = from_io([v], [OpFromGraph([inner], [pt.cos(inner)])(v)])
    found = reduce(graph, wrong=Has("Cos"))
    assert [v.type.shape for v in found.graph.inputs] == [(1,)]


def test_recorded_calls_go_with_their_inputs() -> None:
    x, y = pt.dscalars("xy")
    graph = from_io([x, y], [pt.cos(x) + pt.exp(y)])
    calls = tuple((np.float64(k), np.float64(-k)) for k in range(3))
    graph = Graph(fgraph=graph.fgraph, recorded=calls)

    class _Recorded(Has):
        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            if not any(2 in call for call in graph.recorded):
                return Outcome(State.FINE)
            return super().of(graph, original, limits)

    found = reduce(graph, wrong=_Recorded("Cos"))
    assert found.graph.recorded == ((2.0,),)
    assert [v.name for v in found.graph.inputs] == ["x"]


@pytest.mark.parametrize("what", [*deep("values")])
def test_a_faulty_pass(what: str) -> None:
    """As many tanhs are left as the pass must see until it goes wrong."""
    x, w = pt.dscalars("xw")

    def step(x, w):  # type: ignore[no-untyped-def]
        for k in range(5):
            x = pt.tanh(x * w + k / 10)
        return x

    graph = from_io([x, w], [scan(step, outputs_info=[x], non_sequences=[w], n_steps=5)[-1]])
    found = reduce(graph, (Inexact(),), wrong=PLAIN)
    assert what
    assert sum(str(node.op) == "Tanh" for node in walk(found.graph.fgraph)) == FAULTY
    assert size(found.graph)[0] <= 12


def booleans_in_a_loop() -> Graph:
    x, v = pt.dscalar("x"), pt.dvector("v")

    def step(s, y, x):  # type: ignore[no-untyped-def]
        is_large = pt.gt(abs(x), 0.001)
        return pt.tanh(y * s) + ((1 - is_large) + (1 - is_large))

    return from_io([x, v], [scan(step, sequences=[v], outputs_info=[x], non_sequences=[x])[-1]])


@pytest.mark.parametrize("build", [*deep(booleans_in_a_loop)])
def test_a_bug_of_pytensor(build: Callable[[], Graph]) -> None:
    found = reduce(build(), wrong=ValuesDiffer(compiled_by="vm"))
    assert found.after <= 6
    assert {str(node.op) for node in walk(found.graph.fgraph)} >= {"Add", "Sub"}


@pytest.mark.usefixtures("evaluated_here")
def test_only_what_one_rewriter_breaks() -> None:
    """What shows it is recorded. Where another one breaks the graph as well, it is said."""
    x, v = pt.dscalar("x"), pt.dvector("v")
    is_large = pt.gt(abs(x), 0.001)
    booleans = (1 - is_large) + (1 - is_large)
    reversed_row = pt.specify_shape(v, (5,))[:-2:-1].sum()
    wrong = ValuesDiffer(compiled_by="vm", runs=1)
    found = reduce(from_io([x, v], [booleans + v[0]]), wrong=wrong, rewriter="local_add_canonizer")
    ((value,),) = found.graph.recorded
    assert value == 1
    assert found.after <= 3
    with pytest.raises(VerificationError, match="is not broken: without local_add_canonizer"):
        reduce(
            from_io([x, v], [booleans, reversed_row]), wrong=wrong, rewriter="local_add_canonizer"
        )


@pytest.mark.usefixtures("evaluated_here")
def test_twin_a_rewriter_that_is_not_to_blame() -> None:
    x = pt.dscalar("x")
    is_large = pt.gt(abs(x), 0.001)
    graph = from_io([x], [(1 - is_large) + (1 - is_large)])
    wrong = ValuesDiffer(compiled_by="vm", runs=1)
    with pytest.raises(VerificationError, match="is not broken: without local_exp_log, 1 in place"):
        reduce(graph, wrong=wrong, rewriter="local_exp_log")


def test_what_is_not_broken() -> None:
    with pytest.raises(VerificationError, match="is not broken"):
        reduce(large_graph(), wrong=Has("Cosh"))


def test_what_is_not_stable() -> None:
    class _Flaky(Has):
        count = 0

        def of(self, graph: Graph, original: Graph, limits: Limits) -> Outcome:
            self.count += 1
            return Outcome(State.BROKEN if self.count % 2 else State.FINE)

    with pytest.raises(VerificationError, match="not stable"):
        reduce(large_graph(), wrong=_Flaky("Cos"))


def test_a_command() -> None:
    found = reduce(
        from_io(None, [pt.exp(pt.dscalar("x")) + 1]), wrong=CommandFails(command="test ! -e {}")
    )
    assert found.after in (0, 1)
