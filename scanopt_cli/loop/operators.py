"""Two operators for loops: `Loop`, which runs, and `TracedLoop`, which is for people and passes.

The design is that of PyTensor's pull request 191. A loop carries states, and knows no taps, no
buffers and no sequences: a sequence is a constant that the body indexes by the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode
from pytensor.configdefaults import config
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import lscalar

from scanopt_cli.ir.former_scans import FormerScan
from scanopt_cli.loop.body import Symbolic
from scanopt_cli.loop.memory import copy_shared_outputs
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.pullback import pullback
from scanopt_cli.loop.pushforward import pushforward
from scanopt_cli.loop.shapes import state_shapes, traced_shapes
from scanopt_cli.loop.trace_rows import trace_type


class Loop(LoopOperator):
    """Run the body until it is done, and return the last values of the states.

    The outputs are the states after the last step; of a loop of no steps, the initial ones. States
    may be of any type, and may change their shapes where their types leave them open.

    Parameters
    ----------
    fgraph
        The body (`Body.freeze`).
    n_states
        How many states there are.
    is_while
        Whether the last output of the body is a condition.
    destroyed
        The states whose initial values the loop may overwrite. The others are copied first.
    in_parts
        Whether the code of the loop may do parts of many steps one after the other (`recurrences`),
        which changes the order of sums.
    """

    __props__ = (*LoopOperator.__props__, "destroyed", "in_parts")
    __str__ = LoopOperator.__str__

    def __init__(
        self,
        fgraph: FrozenFunctionGraph,
        n_states: int,
        is_while: bool = False,
        destroyed: tuple[int, ...] = (),
        *,
        in_parts: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(fgraph, n_states, is_while, name=name)
        if self.traced_types:
            raise TypeError("a Loop has no traces; TracedLoop has")
        self.destroyed = destroyed
        self.in_parts = in_parts
        self.destroy_map = {state: [1 + state] for state in destroyed}

    def clone_with_inner_graph(self, graph: FunctionGraph | FrozenFunctionGraph) -> Loop:
        """Return the loop with another body, which has the same states and constants."""
        return super().clone_with_inner_graph(graph).destroying(self.destroyed)

    def destroying(self, states: Iterable[int]) -> Loop:
        """Return the loop that may overwrite the initial values of ``states``."""
        destroyed = tuple(sorted(states))
        return Loop(self.fgraph, self.n_states, self.is_while, destroyed, name=self.name)

    def done_in_parts(self) -> Loop:
        """Return the loop whose code may do its steps in parts."""
        return Loop(
            *(self.fgraph, self.n_states, self.is_while, self.destroyed),
            in_parts=True,
            name=self.name,
        )

    @property
    def traced(self) -> TracedLoop:
        """The same loop with traces."""
        return TracedLoop(self.fgraph, self.n_states, self.is_while, name=self.name)

    def output_name(self, position: int) -> str:
        """Return what an output is called: ``last[0]``."""
        return f"last[{position}]"

    def split_outputs[T](self, outputs: Sequence[T]) -> tuple[list[T], list[None], list[T], None]:
        """Split what stands for the outputs, which are the last states."""
        return list(outputs), [None] * self.n_states, [], None

    def output_types(self) -> list[Type]:
        """Return the types of the outputs."""
        return self.state_types

    def connection_pattern(self, node: Apply) -> list[list[bool]]:  # noqa: ARG002
        """Return for each input, whether a derivative of each output by it may exist."""
        nothing = [False] * self.n_states
        return [nothing, *(row[: self.n_states] for row in self.reached()[1:])]

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shapes of the outputs."""
        return state_shapes(self.kept_lengths, shapes[1 : 1 + self.n_states], node.outputs)

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],  # noqa: ARG002
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return the cotangents of the inputs, by a loop that runs again, with traces."""
        made = self.traced.make_node(*inputs)
        unread = [disconnected_type() for _ in made.outputs[self.n_states :]]
        return pullback(self.traced, inputs, made.outputs, [*cotangents, *unread])

    def pushforward(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],  # noqa: ARG002
        tangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return the tangents of the outputs."""
        return pushforward(self.traced, inputs, tangents)[: self.n_states]

    def link_mode(self, impl: str | None) -> Mode:
        """Return how the body is run: in C if that can be, unless Python is asked for."""
        return super().link_mode("c" if impl is None and config.cxx else impl)

    def compile_fn(self, mode: Mode) -> Function:
        """Return the compiled body; it may overwrite states, and reuse their memory."""
        # A VM that is not lazy reuses memory of a result that it returned (tests/upstream).
        linker = copy(mode.linker)
        linker.lazy = True
        graph = self.fgraph.unfreeze()
        copy_shared_outputs(graph, self.n_states)
        linked: Function = self.link_fgraph(graph, Mode(linker, mode.provided_optimizer))
        return linked

    def perform(
        self,
        node: Apply,  # noqa: ARG002
        inputs: Sequence[Any],
        output_storage: list[Any],
    ) -> None:
        """Run the loop, one call of the compiled body a step."""
        n_steps, initial, constants = self.split(inputs)
        if n_steps < 0:
            raise ValueError(f"{self} was asked for {n_steps} steps")
        states = [
            value if state in self.destroyed else deepcopy(value)
            for state, value in enumerate(initial)
        ]
        is_number = isinstance(self.fgraph.inputs[0].type, ScalarType)
        step, as_index = self.fn, np.int64 if is_number else np.asarray
        for index in range(int(n_steps)):
            states = step(as_index(index), *states, *constants)
            if self.is_while and not states.pop():
                break
        for storage, value in zip(output_storage, states, strict=True):
            storage[0] = value


class TracedLoop(LoopOperator):
    """A loop that also returns the values of all steps, whichever of its outputs are read.

    The outputs are, in this order:

    - the *last* value of each state;
    - the *trace* of each state: its value before each step, and the last. Row 0 is the initial
      value, so a loop of ``n`` steps has ``n + 1`` rows, and the last row is the last value. States
      that are no tensors have a typed list;
    - the trace of each value that a step computes to be traced, one row a step;
    - the number of steps, an int64.

    It does not run. PyTensor lowers it to a `Loop` when it compiles (`lowering`).

    Parameters
    ----------
    fgraph, n_states, is_while
        As of a `Loop`.
    former
        What it remembers of the Scan that it was made of: the content of a `FormerScan`.
    """

    __props__ = (*LoopOperator.__props__, "former")
    __str__ = LoopOperator.__str__

    def __init__(
        self,
        fgraph: FrozenFunctionGraph,
        n_states: int,
        is_while: bool = False,
        former: tuple[Any, ...] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        super().__init__(fgraph, n_states, is_while, name=name)
        if former is not None:
            n_slots = len(fgraph.inputs) - 1 + self.n_traced
            self.former = tuple(FormerScan.checked(former, n_slots))

    def remember(self, op: Any, kinds: Iterable[str | None]) -> None:
        """Remember, of a new loop, ``op`` that it is made of: a Scan, or a loop made of one."""
        settings = op
        if isinstance(op, LoopOperator):
            settings = op.former and FormerScan(*op.former)
        if settings is not None:
            self.former, self.mode = tuple(FormerScan.of(settings, kinds)), op.mode

    @property
    def n_traced(self) -> int:
        """How many values a step computes to be traced, apart from the states."""
        return len(self.traced_types)

    def output_name(self, position: int) -> str:
        """Return what an output is called: ``last[0]``, ``trace[0]``, ``traced[0]``, ``steps``."""
        n = self.n_states
        if position == 2 * n + self.n_traced:
            return "steps"
        if position < 2 * n:
            return f"{'last' if position < n else 'trace'}[{position % n}]"
        return f"traced[{position - 2 * n}]"

    def split_outputs[T](self, outputs: Sequence[T]) -> tuple[list[T], list[T], list[T], T]:
        """Split what stands for the outputs: last states, their traces, other traces, count."""
        n = self.n_states
        *rest, n_steps = outputs
        return rest[:n], rest[n : 2 * n], rest[2 * n :], n_steps

    def output_types(self) -> list[Type]:
        """Return the types of the outputs.

        As of a Scan, no trace has a static number of rows: PyTensor takes the wrong row of
        ``trace[-1:-2:-1].sum(axis=0)`` otherwise (tests/upstream/test_beside_loops.py).
        """
        return [
            *self.state_types,
            *map(trace_type, self.state_types),
            *map(trace_type, self.traced_types),
            lscalar,
        ]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return for each input, whether a derivative of each output by it may exist."""
        n = self.n_states
        rows = [[*row[:n], *row[:n], *row[n:], False] for row in self.reached()[1:]]
        return [[False] * len(node.outputs), *rows]

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Return the shapes of the outputs."""
        last, _, traces, n_done = self.split_outputs(node.outputs)
        n_steps, *outer = node.inputs
        n_rows: Symbolic = n_done if self.is_while else n_steps
        states = state_shapes(self.kept_lengths, shapes[1 : 1 + self.n_states], last)
        traced = traced_shapes(self, outer, traces=traces)
        return [
            *states,
            *(None if row is None else (n_rows + 1, *row) for row in states),
            *(None if row is None else (n_rows, *row) for row in traced),
            (),
        ]

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[Any]) -> None:
        """Raise, since the loop must be lowered before it can run."""
        raise NotImplementedError(
            f"{self} does not run: lower it to a Loop first, as every mode of PyTensor does"
        )

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return the cotangents of the inputs."""
        return pullback(self, inputs, outputs, cotangents)

    def pushforward(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],  # noqa: ARG002
        tangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return the tangents of the outputs."""
        return pushforward(self, inputs, tangents)
