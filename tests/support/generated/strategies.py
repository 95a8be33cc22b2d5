"""The Hypothesis strategy over Scan graphs, for all property tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace

from scanopt_cli.ir.graph import Graph, from_io
from support.generated.arguments import Value, arguments
from support.generated.building import READS, build
from support.generated.drawing import Surroundings, draw_loop, one_in
from support.generated.expressions import Draw
from support.generated.operators import BLOCKWISE, SYMBOLIC
from support.generated.plans import Kind, Loop, Program, Read, Role

_FLOATS = (Kind.REAL, Kind.VECTOR, Kind.MATRIX)


@dataclass(frozen=True, repr=False)
class GeneratedScan:
    """A graph with a Scan, values to run it on, and what it was made of.

    ``arguments`` holds tuples aligned with ``inputs``; ``recipe`` is pseudo-code of the graph,
    and what a failing property prints.
    """

    inputs: list[Variable]
    outputs: list[Variable]
    arguments: tuple[tuple[Value, ...], ...]
    program: Program

    @property
    def recipe(self) -> str:
        return str(self.program)

    def __repr__(self) -> str:
        return f"GeneratedScan of\n{self.recipe}"

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        """Make Hypothesis print the recipe and not every field."""
        printer.text(repr(self))


def with_twin(generated: GeneratedScan) -> Graph:
    """Return a graph in which every loop has a counterpart that it can be merged with.

    The twin reads other values, so it may stop at another step.
    """
    inputs, outputs = build(generated.program)
    twin = {
        other: own * 0.5 if "float" in own.type.dtype else own
        for own, other in zip(generated.inputs, inputs, strict=True)
    }
    return from_io(generated.inputs, [*generated.outputs, *clone_replace(outputs, twin)])


@st.composite
def scan_graphs(
    draw: Draw,
    *,
    while_loops: bool = True,
    nesting: bool = True,
    gradients: bool = True,
    op_from_graphs: bool = True,
    blockwise: bool = True,
    generators: bool = False,
    max_outputs: int = 3,
) -> GeneratedScan:
    """Draw a graph around one `scan` call; each flag switches a feature off, or on.

    ``max_outputs`` bounds how often the loop's results are read; a drawn gradient adds at most
    two outputs, a second one as many, and a generator is the last output.
    """
    surroundings = Surroundings(draw)
    loop = draw_loop(
        draw, surroundings, while_loops=while_loops, nesting=nesting, generators=generators
    )
    assume(blockwise or BLOCKWISE.isdisjoint(loop.operators))
    assume(op_from_graphs or SYMBOLIC.isdisjoint(loop.operators))
    reads = tuple(
        _read(draw, loop.readable, surroundings) for _ in range(draw(st.integers(1, max_outputs)))
    )
    gradient_of, wrt = None, ()
    if gradients and draw(st.sampled_from([False, True, True])):
        gradient_of, wrt = _gradient(draw, surroundings, loop)
    batched: tuple[str, ...] = ()
    floats = _floats(surroundings)
    may_be_batched = loop.until is None and loop.generator is None
    if blockwise and floats and may_be_batched and one_in(draw, 3):
        batched = _one_or_two(draw, floats)
    program = Program(
        inputs=tuple(surroundings.inputs.values()),
        constants=tuple(surroundings.constants.values()),
        loop=loop,
        reads=reads,
        static_shapes=draw(st.booleans()),
        gradient_of=gradient_of,
        wrt=wrt,
        # PyTensor cannot differentiate an OpFromGraph with a generator among its outputs.
        in_op_from_graph=op_from_graphs and not (wrt and loop.generator) and one_in(draw, 5),
        batched=batched,
        second_gradient=bool(wrt) and one_in(draw, 4),
    )
    try:
        inputs, outputs = build(program)
    except NullTypeGradError:  # of a loop with a generator, where PyTensor has no derivative
        assert loop.generator is not None
        program = replace(program, gradient_of=None, wrt=(), second_gradient=False)
        inputs, outputs = build(program)
    seed = draw(st.integers(0, 2**16))
    return GeneratedScan(inputs, outputs, arguments(program, seed), program)


def _read(draw: Draw, results: Mapping[str, Kind], surroundings: Surroundings) -> Read:
    style = draw(st.sampled_from(tuple(READS)))
    names = st.sampled_from(sorted(results))
    if style == "sum_of_lasts":
        return Read(style, (draw(names), draw(names)))
    if style == "at_index":
        return Read(style, (draw(names), surroundings.input(Role.INDEX, Kind.INTEGER)))
    return Read(style, (draw(names),))


def _gradient(
    draw: Draw, surroundings: Surroundings, loop: Loop
) -> tuple[Read | None, tuple[str, ...]]:
    """Draw what is differentiated, and by which inputs; None if no result depends on any.

    PyTensor has no derivative of random numbers by their mean.
    """
    if any(item.mean is not None for item in loop.random):
        return None, ()
    candidates = {}
    for name, kind in loop.readable.items():
        behind = surroundings.inputs_behind(loop.sources_of([name]))
        wrt = [source for source in _floats(surroundings) if source in behind]
        if wrt and kind in _FLOATS:
            candidates[name] = wrt
    if not candidates:
        return None, ()
    result = draw(st.sampled_from(list(candidates)))
    style = draw(st.sampled_from(["last", "sum", "whole", "first", "last_two", "backwards"]))
    return Read(style, (result,)), _one_or_two(draw, candidates[result])


def _floats(surroundings: Surroundings) -> list[str]:
    return [
        plan.name
        for plan in surroundings.inputs.values()
        if plan.kind in _FLOATS and plan.role in (Role.VALUE, Role.SEQUENCE)
    ]


def _one_or_two(draw: Draw, names: Collection[str]) -> tuple[str, ...]:
    subsets = st.lists(st.sampled_from(tuple(names)), min_size=1, max_size=2, unique=True)
    return tuple(draw(subsets))
