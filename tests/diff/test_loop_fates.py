"""What a diff says became of each loop: merged into which, gone, new, replaced or changed.

Each loop that is merged has a twin that only looks so.
"""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.diff.changes import GraphDiff, LoopFate
from scanopt_cli.diff.comparing import diff
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.diff_report import diff_report
from scanopt_cli.reports.loop_text import headline
from support.graph_building import graph_of, scan
from support.printing import printed
from support.recurrences import base, variant

X, Y = pt.dvectors("x", "y")


def decayed(x: Variable, name: str, factor: float = 0.5) -> Any:
    """A loop over ``x`` with one state."""
    return scan(
        lambda row, state: state * factor + row,
        sequences=[x],
        outputs_info=[pt.zeros(())],
        name=name,
    )


def fates(found: GraphDiff) -> dict[str, tuple[str, str | None]]:
    return {loop.title: (loop.fate.value, loop.into) for loop in found.loops}


def graph(*outputs: Variable) -> tuple[list[Variable], list[Variable]]:
    return [X, Y], list(outputs)


def test_a_loop_that_another_one_took_in_is_merged() -> None:
    before = graph_of(decayed(X, "fast", 0.1)[-1], decayed(X, "slow", 0.9).sum())
    found = diff(before, optimize(before, "merge-scans").graph)
    assert fates(found) == {"slow": ("merged", "fast&slow"), "fast": ("changed", "fast&slow")}
    assert headline(found).startswith("2 Scans → 1: 1 merged, 1 changed; ")
    text = printed(diff_report(found), 200)
    assert "- Scan `slow`: merged into Scan `fast&slow`" in text


def test_a_loop_of_other_data_is_gone_though_its_body_is_kept() -> None:
    """Twin: nothing computes what it computed."""
    before = graph(decayed(X, "f")[-1] + decayed(Y, "f")[-1])
    for after in (graph(decayed(X, "f")[-1]), graph(decayed(X, "f")[-1] + 2)):
        found = diff(before, after)
        assert fates(found) == {"f#2": ("gone", None)} or fates(found) == {"f#1": ("gone", None)}
        assert headline(found).startswith("2 Scans → 1: 1 gone; ")


def test_a_loop_whose_output_is_gone_is_gone() -> None:
    before = graph(decayed(X, "f")[-1], decayed(Y, "f")[-1])
    found = diff(before, graph(decayed(X, "f")[-1]))
    assert [loop.fate for loop in found.loops] == [LoopFate.GONE]


def test_copies_of_a_loop_are_merged_into_the_one_that_is_left() -> None:
    """Their bodies change, too; nothing is said of copies where nothing else changes."""
    loop = decayed(X, "f")
    twice = graph(decayed(X, "f")[-1] * 2, loop.sum())
    assert diff(twice, graph(loop[-1] * 2, loop.sum())).same
    loops = [decayed(X, "f", 0.5), decayed(X, "f", 0.5), decayed(X, "f", 0.5)]
    before = graph(*(loop[-1] * n for n, loop in enumerate(loops, 2)))
    one = decayed(X, "f", 0.25)
    found = diff(before, graph(*(one[-1] * n for n in (2, 3, 4))))
    (loop,) = found.loops
    assert (loop.fate, loop.copies, loop.changes) == (LoopFate.CHANGED, (3, 1), 1)
    assert headline(found).startswith("3 Scans → 1: 2 merged, 1 changed; ")
    assert "3 equal ones → 1" in printed(diff_report(found), 200)


def test_three_loops_that_one_new_one_computes_are_merged_into_it() -> None:
    """As PyTensor's gradients are, which repeat a loop for each part of a cost."""
    weight = pt.dscalar("weight")

    def part(n: float) -> Any:
        return scan(
            lambda row, state, k: pt.tanh(state * k) + row * n,
            sequences=[X],
            outputs_info=[weight],
            non_sequences=[weight],
            name="part",
        )

    def all_of_them(row: Any, *rest: Any) -> list[Any]:
        *states, k = rest
        return [pt.exp(s) * k + pt.sin(row) / n for n, s in enumerate(states, 1)]

    wholes = scan(
        all_of_them,
        sequences=[X],
        outputs_info=[weight] * 3,
        non_sequences=[weight],
        name="part",
    )
    inputs = [X, weight]
    old = (inputs, [part(n)[-1] for n in (1.0, 2.0, 3.0)])
    new = (inputs, [pt.log(whole[-1]) for whole in wholes])
    found = diff(old, new)
    kinds = {loop.fate for loop in found.loops}
    assert sum(loop.fate in (LoopFate.MERGED, LoopFate.CHANGED) for loop in found.loops) == 3
    assert LoopFate.GONE not in kinds
    assert headline(found).startswith("3 Scans → 1: ")


def test_a_loop_of_another_design_replaces_one() -> None:
    before = base.graph(gradient=True)
    found = diff(before, optimize(before, "scan-to-loop").graph)
    assert {loop.fate for loop in found.loops} == {LoopFate.REPLACED}
    assert [(loop.name, loop.into_design, loop.into) for loop in found.loops] == [
        ("rnn", "TracedLoop", "rnn"),
        ("grad_of_rnn", "TracedLoop", "grad_of_rnn"),
    ]
    assert headline(found).startswith("2 Scans → 2 TracedLoops: 2 replaced; ")
    assert "now TracedLoop `grad_of_rnn`" in printed(diff_report(found), 200)


def test_a_new_loop_is_new_and_a_lost_one_is_gone() -> None:
    alone, both = graph(X.sum()), graph(X.sum(), decayed(Y, "f")[-1])
    assert fates(diff(alone, both)) == {"f": ("new", None)}
    assert fates(diff(both, alone)) == {"f": ("gone", None)}
    assert headline(diff(alone, both)).startswith("no loop → 1 Scan: 1 new; ")
    assert headline(diff(both, alone)).startswith("1 Scan → no loop: 1 gone; ")


def test_a_loop_inside_of_a_loop_has_the_names_around_it() -> None:
    def rows(factor: float) -> tuple[list[Variable], list[Variable]]:
        matrix = pt.dmatrix("matrix")
        out = scan(
            lambda row: decayed(row, "inner", factor)[-1],
            sequences=[matrix],
            name="outer",
        )
        return [matrix], [out]

    found = diff(rows(0.5), rows(0.25))
    loops = {loop.title: (loop.changed, loop.times) for loop in found.loops}
    assert loops["outer/inner"] == (1, 1)
    text = printed(diff_report(found), 200)
    assert "~ changed Scan `outer/inner`" in text
    assert "constant: 0.5 → 0.25" in text


def test_all_changes_of_loops_are_counted() -> None:
    before, after = base.graph(gradient=True), variant(states=("h", "c"))
    for found in (diff(before, after), diff(after, before)):
        inside = sum(loop.changes for loop in found.loops)
        assert 0 < inside <= sum(change.count for change in found.changes)
    for states in (("h",), ("h", "b")):
        found = diff(base.graph(), variant(states=states))
        (loop,) = found.loops
        assert loop.removed == 3 - len(states)


def test_sizes_of_buffers_are_bytes() -> None:
    found = diff(graph(decayed(X, "f")[-1]), optimize(graph_of(decayed(X, "f")[-1])).graph)
    (loop,) = found.loops
    assert (loop.buffers, loop.buffers_after) == ("8*x.shape[0]+8", "8*min(1,x.shape[0])+8")
    assert "buffers 8*x.shape[0]+8 → 8*min(1,x.shape[0])+8 bytes" in headline(found)


def test_the_same_graphs_have_no_loops_to_tell_of() -> None:
    assert diff(base.graph(), variant(name="gru")).loops == ()
