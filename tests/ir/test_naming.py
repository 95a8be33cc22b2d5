"""What Scans are called: one name for each, in everything that speaks of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytensor.tensor as pt
from hypothesis import given
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.inspection import inspect_graph
from scanopt_cli.autodiff.pedigree.pedigree import pedigree
from scanopt_cli.diff.budgets import check, parse_budget
from scanopt_cli.diff.comparing import diff
from scanopt_cli.ir.graph import Graph, from_io
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.naming import titles
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.remark_text import grouped
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import graph_of, power, scan

NAMES = ["loop#1", "loop#1/inner", "loop#2", "loop#2/inner#1", "loop#2/inner#2", "other"]


def graph(factor: float = 3.0) -> Graph:
    """Two loops of one name, with one and with two loops of one name inside, and a third."""
    s = pt.dmatrix("s")

    def inside(v: Variable, factor: float) -> Variable:
        # Only the last step is read, and the second output not at all.
        states, _ = scan(
            lambda a, h: [pt.tanh(h * factor + a), a * factor], sequences=[v],
            outputs_info=[pt.zeros(()), None], name="inner",
        )  # fmt: skip
        return states[-1]

    first = scan(lambda row: inside(row, 2.0) + row, sequences=[s], name="loop")
    second = scan(
        lambda row: inside(row, factor) * inside(row, factor + 1.0), sequences=[first], name="loop"
    )
    return from_io([s], [second, scan(pt.exp, sequences=[first], name="other")])


def names(known: Graph) -> list[str]:
    found = inspect_graph(known.fgraph).scans
    return ["/".join((*scan.path, scan.name)) for scan in found]


def test_inspection_names_every_loop_once() -> None:
    assert sorted(names(graph())) == NAMES


def test_the_pedigree_has_the_names_of_the_inspection() -> None:
    assert [record.full_name for record in pedigree(graph()).scans] == names(graph())


def test_budgets_have_the_names_of_the_inspection() -> None:
    (over,) = check(parse_budget("scans=0"), graph())
    assert sorted(over.loops) == NAMES


def test_remarks_have_the_names_of_the_inspection() -> None:
    remarks = optimize(graph(), "remove-unused").passes[0].remarks
    assert {r.scan for r in remarks} == {name for name in NAMES if "inner" in name}


def test_a_diff_has_the_names_of_the_inspection() -> None:
    places = {"/".join(change.where) for change in diff(graph(), graph(5.0)).changes}
    assert places == {"loop#2/inner#1", "loop#2/inner#2"}


def test_inspection_tells_which_of_several_loops_is_read() -> None:
    told = {"/".join((*s.path, s.name)): s for s in inspect_graph(graph().fgraph).scans}
    (computed,) = [slot for slot in told["loop#2"].slots if slot.kind == "nit_sot"]
    assert "Scan inner#1" in computed.inside
    assert "Scan inner#2" in computed.inside
    assert "Scan loop#1" in told["other"].slots[0].fed_by
    _, xs = power(name="loop")
    chained = graph_of(scan(pt.exp, sequences=[xs], name="loop"))
    first, second = inspect_graph(chained.fgraph).scans
    assert (first.name, second.name) == ("loop#1", "loop#2")
    assert "Scan loop#1" in second.slots[0].fed_by


def test_a_body_that_several_loops_share_is_named_after_all_of_them() -> None:
    """It is rewritten once, and what is said of it is true of each."""
    x = pt.dmatrix("x")

    def step(row: Variable) -> Variable:
        states, _ = scan(
            lambda a, h: [h + a, a], sequences=[row], outputs_info=[pt.zeros(()), None],
            name="inner",
        )  # fmt: skip
        return states[-1] + row

    rows = scan(step, sequences=[x], name="loop")
    again = rows.owner.op.make_node(*rows.owner.inputs[:1], rows, *rows.owner.inputs[2:])
    (run,) = optimize(graph_of(again.outputs[0]), "remove-unused").passes
    assert [remark.scan for remark in run.remarks] == ["loop/inner"]


def test_what_is_said_of_every_loop_of_a_name_is_printed_once() -> None:
    """The remarks themselves are one for each."""
    last: Variable = pt.dvector("s")
    for _ in range(4):
        last, _unread = scan(lambda a: [pt.exp(a), a], sequences=[last], name="loop")
    run = optimize(graph_of(last), "remove-unused").passes[0]
    assert {remark.scan for remark in run.remarks} == {f"loop#{n}" for n in range(1, 5)}
    (one,) = grouped(run.remarks)
    assert one.scan == f"{run.remarks[0].scan} and 3 more"


def test_numbers_do_not_meet_names() -> None:
    """A name that looks like a number given to another is left to its loop."""
    s = pt.dvector("s")
    last = s
    for name in ("a", "a#1", "a"):
        last = scan(pt.exp, sequences=[last], name=name)
    assert names(graph_of(last)) == ["a#2", "a#1", "a#3"]


def test_graphs_are_named_with_the_loops() -> None:
    u, x = pt.dvector("u"), pt.dvector("x")
    layer = OpFromGraph([u], [scan(pt.exp, sequences=[u], name="loop")], name="layer")
    assert names(graph_of(layer(layer(x)))) == ["layer#1/loop", "layer#2/loop"]


@given(scan_graphs())
def test_copies_have_the_titles_of_the_original(example: GeneratedScan) -> None:
    """However a graph is copied: frozen, unfrozen, cloned; and no two nodes have one title."""
    original = from_io(example.inputs, example.outputs)

    def all_titles(known: AbstractFunctionGraph) -> list[object]:
        called = titles(known.outputs)
        assert max(Counter(called.values()).values(), default=1) == 1
        return [(name, [all_titles(g) for g in inner_graphs(n.op)]) for n, name in called.items()]

    expected = all_titles(original.fgraph)
    copies: list[Callable[[], AbstractFunctionGraph]] = [
        lambda: original.copy().fgraph,
        lambda: original.fgraph.freeze(),
        lambda: original.fgraph.freeze().unfreeze(),
    ]
    for copied in copies:
        assert all_titles(copied()) == expected
