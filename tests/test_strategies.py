"""The generated graphs evaluate, and have every feature that properties are to be tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise

from support import tiers
from support.evaluating import evaluator
from support.generated.building import READS
from support.generated.plans import Alloc, Constant, Kind, Loop, Program
from support.generated.strategies import GeneratedScan, scan_graphs

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def examples() -> list[GeneratedScan]:
    drawn: list[GeneratedScan] = []

    @settings(max_examples=500, phases=[Phase.generate], database=None, derandomize=True)
    @given(scan_graphs())
    def collect(example: GeneratedScan) -> None:
        drawn.append(example)

    collect()
    return drawn


def nodes(example: GeneratedScan) -> Iterator[Apply]:
    """Walk the nodes outside and inside of everything that has a body."""
    pending = [(example.inputs, example.outputs)]
    while pending:
        for node in applys_between(*pending.pop()):
            yield node
            op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
            if isinstance(op, Scan | OpFromGraph):
                pending.append((op.fgraph.inputs, op.fgraph.outputs))


def scans(example: GeneratedScan) -> list[Scan]:
    ops = [getattr(node.op, "core_op", node.op) for node in nodes(example)]
    return [op for op in ops if isinstance(op, Scan)]


def repeats(items: list[object]) -> bool:
    return len(set(items)) < len(items)


def sequence_sources(program: Program) -> list[Constant | Alloc]:
    sources = {item.source for item in program.loop.sequences}
    return [plan for plan in program.constants if plan.name in sources]


def unread(program: Program) -> set[str]:
    return set(program.loop.results) - {name for read in program.reads for name in read.results}


def unused(loop: Loop) -> set[str]:
    body = " ".join(map(str, (*loop.inner, *loop.states, *loop.maps, loop.until)))
    return {item.name for item in loop.non_sequences if item.name not in body}


def feeding_in_circles(program: Program) -> bool:
    """Tell whether two states that no output reads read each other."""
    states = [state for state in program.loop.states if state.name in unread(program)]
    return any(
        f"{a.name}[" in str(b.update) and f"{b.name}[" in str(a.update)
        for a in states
        for b in states
        if a is not b
    )


PLANNED: dict[str, Callable[[Program], bool]] = {
    "several sequences": lambda p: len(p.loop.sequences) > 1,
    "tapped sequence": lambda p: any(len(item.taps) > 1 for item in p.loop.sequences),
    "shared sequence": lambda p: repeats([item.source for item in p.loop.sequences]),
    "equal sequences": lambda p: repeats(
        [(item.source, item.taps, item.reversed) for item in p.loop.sequences]
    ),
    "reversed sequence": lambda p: any(item.reversed for item in p.loop.sequences),
    "uniform sequence": lambda p: any(
        isinstance(plan, Constant) and not plan.ramp for plan in sequence_sources(p)
    ),
    "varying constant sequence": lambda p: any(
        isinstance(plan, Constant) and plan.ramp for plan in sequence_sources(p)
    ),
    "alloc sequence": lambda p: any(isinstance(plan, Alloc) for plan in sequence_sources(p)),
    "several states": lambda p: len(p.loop.states) > 1,
    "state with taps -2, -1": lambda p: any(item.taps == (-2, -1) for item in p.loop.states),
    "state with taps -3, -1": lambda p: any(item.taps == (-3, -1) for item in p.loop.states),
    "integer state": lambda p: any(item.kind is Kind.INTEGER for item in p.loop.states),
    "vector state": lambda p: any(item.kind is Kind.VECTOR for item in p.loop.states),
    "states feeding in circles": feeding_in_circles,
    "unread result": lambda p: bool(unread(p)),
    "unused non-sequence": lambda p: bool(unused(p.loop)),
    "equal non-sequences": lambda p: repeats([item.source for item in p.loop.non_sequences]),
    "constant non-sequence": lambda p: bool(
        {plan.name for plan in p.constants} & {item.source for item in p.loop.non_sequences}
    ),
    "steps from an input": lambda p: isinstance(p.loop.steps, str),
    "steps from the sequences": lambda p: p.loop.steps is None,
    "no step": lambda p: p.loop.steps == 0,
    "one step": lambda p: p.loop.steps == 1,
    "constant steps": lambda p: isinstance(p.loop.steps, int) and p.loop.steps > 1,
    "backwards": lambda p: p.loop.go_backwards,
    "no static shapes": lambda p: not p.static_shapes,
    "gradient of a nested loop": lambda p: bool(p.wrt and p.loop.inner),
    "gradient of a while loop": lambda p: bool(p.wrt and p.loop.until),
    "vectorised gradient": lambda p: bool(p.wrt and p.batched),
    **{
        f"read {style}": lambda p, style=style: any(read.style == style for read in p.reads)
        for style in READS
    },
}
BUILT: dict[str, Callable[[GeneratedScan], bool]] = {
    "nit_sot": lambda e: any(op.info.n_nit_sot for op in scans(e)),
    "sit_sot": lambda e: any(op.info.n_sit_sot for op in scans(e)),
    "mit_sot": lambda e: any(op.info.n_mit_sot for op in scans(e)),
    "mit_mot": lambda e: any(op.info.n_mit_mot for op in scans(e)),
    "while loop": lambda e: any(op.info.as_while for op in scans(e)),
    "Scan in Scan": lambda e: any(
        isinstance(inner.op, Scan) for op in scans(e) for inner in op.fgraph.apply_nodes
    ),
    "Scan in OpFromGraph": lambda e: any(
        isinstance(node.op, OpFromGraph)
        and any(isinstance(inner.op, Scan) for inner in node.op.fgraph.apply_nodes)
        for node in nodes(e)
    ),
    "Scan in Blockwise": lambda e: any(
        isinstance(node.op, Blockwise) and isinstance(node.op.core_op, Scan) for node in nodes(e)
    ),
}


@pytest.mark.parametrize("feature", PLANNED)
def test_plans_have_the_feature(examples: list[GeneratedScan], feature: str) -> None:
    assert any(PLANNED[feature](example.program) for example in examples)


@pytest.mark.parametrize("feature", BUILT)
def test_graphs_have_the_feature(examples: list[GeneratedScan], feature: str) -> None:
    assert any(BUILT[feature](example) for example in examples)


def test_nearly_all_outputs_have_values(examples: list[GeneratedScan]) -> None:
    outcomes = []
    for example in examples:
        run = evaluator(example.inputs, example.outputs)
        outcomes += [outcome for values in example.arguments for outcome in run(values)]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    # Reads beyond the last step raise, and gradients of no step may: nothing else does.
    assert {type(error) for error in failed} <= {IndexError, ValueError}
    assert len(failed) < 0.2 * len(outcomes)
    values = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    assert np.mean([np.isfinite(value).all() for value in values]) > 0.7


@given(example=scan_graphs(gradients=False, blockwise=False, op_from_graphs=False))
@settings(max_examples=tiers.examples(10, 60))
def test_arguments_fit_the_inputs(example: GeneratedScan) -> None:
    for values in example.arguments:
        for variable, value in zip(example.inputs, values, strict=True):
            variable.type.filter(value, strict=True)


@given(
    example=scan_graphs(
        while_loops=False,
        nesting=False,
        gradients=False,
        op_from_graphs=False,
        blockwise=False,
        max_outputs=1,
    )
)
@settings(max_examples=tiers.examples(20, 100))
def test_flags_switch_features_off(example: GeneratedScan) -> None:
    (op,) = scans(example) or [None]
    assert len(example.outputs) == 1
    assert op is None or not (op.info.as_while or op.info.n_mit_mot)
    assert not any(isinstance(node.op, OpFromGraph | Blockwise) for node in nodes(example))


def test_a_failure_shrinks_to_a_short_recipe() -> None:
    smallest = find(
        scan_graphs(),
        lambda example: any(op.info.as_while for op in scans(example)),
        settings=settings(database=None, derandomize=True),
    )
    assert len(smallest.recipe.splitlines()) <= 8
    assert smallest.recipe in repr(smallest)
