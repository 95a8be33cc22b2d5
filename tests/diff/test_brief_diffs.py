"""The diff in short: one screen, the most important first, and nothing that is not counted."""

from __future__ import annotations

import pytest

from scanopt_cli.diff.changes import Change, ChangeKind, GraphDiff, Subject, SubjectKind
from scanopt_cli.diff.comparing import diff
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.diff_brief import brief
from scanopt_cli.reports.diff_report import diff_report
from support.printing import printed
from support.recurrences import base, variant
from support.sample_building import samples

LINES = 40


def short(found: GraphDiff, lines: int = LINES, width: int = 80) -> list[str]:
    return printed(diff_report(found, lines=lines), width).rstrip().splitlines()


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize(
    "preset",
    ["grad", *(pytest.param(name, marks=pytest.mark.deep) for name in ("default", "loop"))],
)
@pytest.mark.parametrize("name", samples())
def test_an_optimized_graph_is_one_screen(name: str, preset: str) -> None:
    graph = samples()[name]
    found = diff(graph, optimize(graph, preset).graph)
    for width in (80, 200):
        lines = short(found, width=width)
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= width
    told = " ".join(short(found))
    for loop in found.loops:
        assert f"`{loop.title}`" in told
        assert loop.place is None or loop.place in told


def node(name: str, **more: object) -> Change:
    return Change(kind=ChangeKind.ADDED, subject=Subject(op=name), **more)  # type: ignore[arg-type]


def of(*changes: Change) -> GraphDiff:
    found = diff(base.graph(), variant(factor=0.25))
    return GraphDiff(
        same=False,
        changes=changes,
        before=found.before,
        after=found.after,
        digest_before="0",
        digest_after="1",
    )


def test_inputs_and_outputs_come_first_and_copies_last() -> None:
    output = Change(
        kind=ChangeKind.CHANGED,
        subject=Subject(kind=SubjectKind.OUTPUT, place=0),
        before="a",
        after="b",
    )
    copies = [node(f"DeepCopyOp{n}") for n in range(3)] + [node("DeepCopyOp"), node("Shape_i{0}")]
    found = of(*copies, node("Exp"), output)
    text = printed(brief(found, 3), 80).splitlines()
    assert [line.strip() for line in text[:1]] == ["~ changed output 0: a → b"]
    whole = printed(brief(found, 100), 80)
    assert "more change" not in whole
    # Those that do not fit are the ones that matter least.
    six = printed(brief(found, 6), 80)
    assert "DeepCopyOp0" in six
    assert "Exp" in six
    assert "DeepCopyOp\n" not in six.replace(" ", "")
    assert "… 2 more changes; --lines 0 shows all" in six


def test_a_constant_of_one_value_matters_least() -> None:
    def constant(before: str, after: str) -> Change:
        subject = Subject(kind=SubjectKind.NODE_INPUT, op="Sub", place=0)
        return Change.of_property(subject, "constant", before, after)

    found = of(constant("1", "1.0"), constant("1", "2.0"))
    text = printed(brief(found, 2), 80)
    assert "1 → 2.0" in text
    assert "1 → 1.0" not in text


def test_slots_are_folded_and_equal_changes_told_once() -> None:
    found = diff(base.graph(), variant(states=("h",), sequences=("x",), taps=(-2, -1)))
    lines = short(found, width=200)
    assert any(line.strip() == "- seq `y`, `z`; sit_sot `b`, `c`" for line in lines), lines


def test_what_is_hidden_and_what_is_shown_are_all_changes() -> None:
    graph = samples()["kalman_dlogp"]
    found = diff(graph, optimize(graph, "grad").graph)
    total = sum(change.count for change in found.changes)
    *_, last = (line for line in short(found) if line.startswith("… "))
    hidden = int(last.split()[1])
    assert 0 < hidden < total
    assert not any(line.startswith("… ") for line in short(found, 1000))


def test_steps_are_told_once() -> None:
    """The number of steps and the constant that it is are one change to a person."""
    before, after = variant(steps=lambda n: 4), variant(steps=lambda n: 3)
    lines = [line.strip() for line in short(diff(before, after))]
    assert "~ changed steps: 4 → 3" in lines
    assert not any("constant" in line for line in lines)
