"""What the two loop operators have in common: a body, inputs, slots, and how they print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pytensor.compile.inner_function import HasInnerFunction
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.graph.type import Type
from pytensor.printing import op_debug_information
from pytensor.tensor.basic import as_tensor_variable, cast, constant
from pytensor.tensor.type import integer_dtypes, lscalar

from scanopt_cli.ir.connection_patterns import pattern_of_graph
from scanopt_cli.ir.former_scans import FormerScan
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.remembering import remembered
from scanopt_cli.ir.slots import HasSlots, InnerSlot, Slot, SlotKind, SlotView, with_arguments
from scanopt_cli.ir.written import Names, copy_mark
from scanopt_cli.loop.body import Body
from scanopt_cli.loop.shapes import kept_lengths
from scanopt_cli.loop.trace_rows import has_array_trace


class LoopOperator(HasInnerFunction, HasSlots):
    """What `Loop` and `TracedLoop` share: the body, and the inputs.

    The inputs are ``(most steps, initial states…, constants…)``. The loop runs that many steps, or
    fewer if its body has a condition: it ends after the first step whose condition is false.
    """

    __props__: tuple[str, ...] = ("fgraph", "n_states", "is_while")
    takes_another_body: ClassVar[bool] = True
    former: tuple[Any, ...] | None = None
    """What a TracedLoop remembers of the Scan that it was made of: a `FormerScan`."""
    mode: Any = None
    """How the step of that Scan was compiled."""

    def __init__(
        self,
        fgraph: FrozenFunctionGraph,
        n_states: int,
        is_while: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        index, *inputs = fgraph.inputs
        # A file may hold numbers of other kinds, with which sums overflow.
        if type(n_states) is not int or type(is_while) is not bool:
            raise TypeError("a loop has a whole number of states, and a condition or none")
        if not 0 <= n_states <= min(len(inputs), len(fgraph.outputs) - is_while):
            raise ValueError(f"the body of a loop does not have {n_states} states")
        Body(
            index=index,
            states=inputs[:n_states],
            next_states=fgraph.outputs[:n_states],
            condition=fgraph.outputs[-1] if is_while else None,
        ).check_types()
        self.fgraph = fgraph
        self.n_states = n_states
        self.is_while = is_while
        self.name = name

    @classmethod
    def from_body(cls, body: Body, *, name: str | None = None) -> Self:
        """Return the operator that repeats ``body``; errors as of `Body.freeze`."""
        return cls(body.freeze(), len(body.states), body.condition is not None, name=name)

    @classmethod
    def over(
        cls,
        n_steps: Any,
        body: Body,
        initial: Sequence[Variable],
        constants: Mapping[Variable, Variable],
        *,
        name: str | None = None,
        like: Names | None = None,
    ) -> list[Variable]:
        """Return the outputs of a loop over ``body``.

        ``constants`` maps the constants of the body, which need not name them, to their values;
        those that it does not read are left out. ``like`` says which loop it is made of.
        """
        read = set(explicit_graph_inputs(body.outputs))
        used = {inner: value for inner, value in constants.items() if inner in read}
        op = cls.from_body(replace(body, constants=list(used)), name=name)
        if like is not None:
            fed = [*body.states, *used]
            like.give(op, [*fed, *body.traced, body.index])
            kinds: list[str | None] = [*map(like.kinds.get, fed), *like.traced]
            kinds += [None] * (len(fed) + len(body.traced) - len(kinds))
            op.remember(core_op(like.node.op), kinds)
        return op.make_node(n_steps, *initial, *used.values()).outputs

    @property
    def body(self) -> Body:
        """A copy of the body, to compute with."""
        return Body.of(self.fgraph, self.n_states, self.is_while)

    @property
    def state_types(self) -> list[Type]:
        """The types of the states."""
        return [v.type for v in self.fgraph.inputs[1 : 1 + self.n_states]]

    @property
    def traced_types(self) -> list[Type]:
        """The types of what a step computes to be traced, apart from the states."""
        end = len(self.fgraph.outputs) - self.is_while
        return [v.type for v in self.fgraph.outputs[self.n_states : end]]

    @property
    def kept_lengths(self) -> tuple[tuple[bool, ...], ...]:
        """For each state and dimension, whether every step provably keeps its length."""
        return kept_lengths(self.fgraph, self.n_states)

    def clone_with_inner_graph(self, graph: FunctionGraph | FrozenFunctionGraph) -> Self:
        """Return the operator with another body of the same states, constants and traces."""
        frozen = graph if isinstance(graph, FrozenFunctionGraph) else graph.freeze()
        made = type(self)(frozen, self.n_states, self.is_while, name=self.name)
        copy_mark(self, made)
        made.former, made.mode = self.former, self.mode
        return made

    def remember(self, op: Any, kinds: Iterable[str | None]) -> None:
        """Remember, of a new loop, ``op`` that it is made of: a Scan, or a loop made of one."""

    def clone(self) -> Self:
        """Return the operator itself, since nothing changes it."""
        return self

    def do_constant_folding(self, fgraph: FunctionGraph, node: Apply) -> bool:  # noqa: ARG002
        """Return that PyTensor must not run a loop while it rewrites: it may be long."""
        return False

    def split(self, inputs: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
        """Split what stands for the inputs: the number of steps, the states, the constants."""
        n_steps, *rest = inputs
        return n_steps, rest[: self.n_states], rest[self.n_states :]

    def view(self, node: Apply) -> LoopView:
        """Return ``node``, which applies the loop, as slots."""
        return LoopView.of(node)

    def inner_slots(self) -> list[InnerSlot]:
        """Return the slots of the loop without a node."""
        index, *inner = self.fgraph.inputs
        outputs = self.fgraph.outputs
        n, end = self.n_states, len(outputs) - self.is_while
        # Slots with inputs come first, in the order of the inputs.
        slots = [
            *(
                InnerSlot(SlotKind.STATE, i, (-1,), (0,), [old], [new])
                for i, (old, new) in enumerate(zip(inner[:n], outputs[:n], strict=True))
            ),
            *(
                InnerSlot(SlotKind.CONSTANT, i, inner_inputs=[value])
                for i, value in enumerate(inner[n:])
            ),
            *(
                InnerSlot(SlotKind.TRACED, i, (), (0,), [], [value])
                for i, value in enumerate(outputs[n:end])
            ),
            InnerSlot(SlotKind.INDEX, 0, inner_inputs=[index]),
        ]
        if self.former is not None:
            kinds = FormerScan(*self.former).kinds
            for slot, kind in zip(slots[:-1], kinds, strict=True):
                slot.former = None if kind is None else SlotKind(kind)
        return with_arguments(slots, self)

    @property
    def inner_condition(self) -> Variable | None:
        """The condition on which the loop goes on, if there is one."""
        return self.fgraph.outputs[-1] if self.is_while else None

    def split_outputs[T](
        self, outputs: Sequence[T]
    ) -> tuple[Sequence[T], Sequence[T | None], Sequence[T], T | None]:
        """Split what stands for the outputs: last states, their traces, other traces, count."""
        raise NotImplementedError

    def output_types(self) -> list[Type]:
        """Return the types of the outputs."""
        raise NotImplementedError

    def make_node(self, *inputs: Any) -> Apply:
        """Apply the loop to ``(most steps, initial states…, constants…)``.

        Raises
        ------
        TypeError
            If an input is not of the type that the body takes.
        ValueError
            If the number of inputs is wrong, or the number of steps is known to be negative.
        """
        if len(inputs) != len(self.fgraph.inputs):
            raise ValueError(
                f"{self} takes {len(self.fgraph.inputs)} inputs: the most steps, {self.n_states} "
                f"states and {len(self.fgraph.inputs) - 1 - self.n_states} constants; "
                f"it was given {len(inputs)}"
            )
        n_steps, states, constants = self.split(inputs)
        types = [v.type for v in self.fgraph.inputs[1:]]
        roles = [
            *(f"the initial value of state {i}" for i in range(len(states))),
            *(f"constant {i}" for i in range(len(constants))),
        ]
        taken = [
            _as_type(value, wanted, f"{role} of {self}")
            for value, wanted, role in zip((*states, *constants), types, roles, strict=True)
        ]
        n_steps = as_step_count(n_steps)
        return Apply(self, [n_steps, *taken], [kind() for kind in self.output_types()])

    def reached(self) -> list[list[bool]]:
        """Return for each input of the body, whether a derivative by it may exist of each output.

        The outputs are the states and the traced values, in this or in a later step. Of generators
        there is none.
        """
        return [list(row) for row in _reached(self.fgraph, self.n_states, self.is_while)]

    def __str__(self) -> str:
        """Return the class and name."""
        return type(self).__name__ + (f"{{{self.name}}}" if self.name else "")


@remembered
def _reached(
    fgraph: FrozenFunctionGraph, n_states: int, is_while: bool
) -> tuple[tuple[bool, ...], ...]:
    pattern = pattern_of_graph(fgraph)
    if is_while:
        pattern = pattern[:, :-1]
    for i, variable in enumerate(fgraph.inputs):
        pattern[i] &= has_array_trace(variable.type)
    states = slice(1, 1 + n_states)
    pattern[states, :n_states] |= np.eye(n_states, dtype=bool)
    while True:
        # Products of booleans would not use BLAS.
        numbers = pattern.astype(np.float32)
        further = (numbers[:, :n_states] @ numbers[states]) > 0
        if (further <= pattern).all():
            return tuple(tuple(map(bool, row)) for row in pattern)
        pattern = pattern | further


def as_step_count(n_steps: Any) -> Variable:
    """Return a number of steps as an int64 of no dimensions.

    Raises
    ------
    TypeError
        If it is no integer.
    ValueError
        If it is known to be negative.
    """
    variable = as_tensor_variable(n_steps)
    if variable.ndim != 0 or variable.dtype not in integer_dtypes:
        raise TypeError(f"a number of steps is an integer of no dimensions, not {variable.type}")
    if isinstance(variable, Constant) and variable.data < 0:
        raise ValueError(f"a loop cannot run {variable.data} steps")
    if variable.dtype == "int64":
        return variable
    if isinstance(variable, Constant):
        return constant(variable.data, dtype="int64")
    return cast(variable, "int64")


def _as_type(value: Any, wanted: Type, role: str) -> Variable:
    try:
        return wanted.filter_variable(value)
    except (TypeError, NotImplementedError) as error:
        given = getattr(value, "type", type(value).__name__)
        raise TypeError(f"{role} must be of type {wanted}, not {given}") from error


@dataclass(slots=True, eq=False)
class LoopView(SlotView):
    """A TracedLoop node, or a Loop node, as slots; make one with `LoopView.of`.

    A state reads its value before the step, and writes the one after it. The index is fed by the
    number of steps.
    """

    op: LoopOperator

    @classmethod
    def of(cls, node: Apply) -> LoopView:
        """View ``node``, which applies a TracedLoop or a Loop."""
        op = node.op
        n_steps, initial, constants = op.split(node.inputs)
        last, traces, traced, _ = op.split_outputs(node.outputs)
        own = iter((*initial, *constants))
        slots = [
            Slot.of(slot, next(own) if slot.has_input else n_steps) for slot in op.inner_slots()
        ]
        view = cls(node, op, n_steps, slots, op.inner_condition)
        for slot, final, trace in zip(view.of_kind(SlotKind.STATE), last, traces, strict=True):
            slot.last, slot.outer_output = final, trace
        for slot, trace in zip(view.of_kind(SlotKind.TRACED), traced, strict=True):
            slot.outer_output = trace
        return view

    @classmethod
    def of_output(cls, node: Apply, output: Variable) -> LoopView:
        """View only the slot of an output, without its inner variables; none if it is the count.

        That is enough to ask for lengths, and takes time that does not grow with the body.
        """
        op = node.op
        n_steps, initial, _ = op.split(node.inputs)
        last, traces, traced, _ = op.split_outputs(node.outputs)
        place = output.index
        assert place is not None
        slots = []
        if place < len(last) + len(traces):
            number = place % len(last)
            slots = [Slot(SlotKind.STATE, number, (-1,), (0,), outer_input=initial[number])]
            slots[0].last, slots[0].outer_output = last[number], traces[number]
        elif output in traced:
            number = place - len(last) - len(traces)
            slots = [Slot(SlotKind.TRACED, number, (), (0,), outer_input=n_steps)]
            slots[0].outer_output = output
        return cls(node, op, n_steps, slots, op.inner_condition)

    @property
    def counts(self) -> list[Variable]:
        """The outputs of the node that belong to no slot: how many steps were run."""
        return [] if self.n_done is None else [self.n_done]

    @property
    def is_traced(self) -> bool:
        """Whether the loop is a TracedLoop, not a Loop."""
        return self.n_done is not None

    @property
    def n_done(self) -> Variable | None:
        """The output of a TracedLoop that says how many steps were run."""
        *_, n_done = self.op.split_outputs(self.node.outputs)
        return n_done

    def outputs(self) -> list[Slot]:
        """Return the slots that have outputs, in the order of the inner outputs."""
        return [*self.of_kind(SlotKind.STATE), *self.of_kind(SlotKind.TRACED)]

    def body(self) -> Body:
        """Return the body that the current slots describe; the view is unfrozen."""
        index = next((s.inner_inputs[0] for s in self.of_kind(SlotKind.INDEX)), lscalar())
        states = self.of_kind(SlotKind.STATE)
        return Body(
            index=index,
            states=[slot.inner_inputs[0] for slot in states],
            constants=[slot.inner_inputs[0] for slot in self.of_kind(SlotKind.CONSTANT)],
            next_states=[slot.inner_outputs[0] for slot in states],
            traced=[slot.inner_outputs[0] for slot in self.of_kind(SlotKind.TRACED)],
            condition=self.condition,
        )

    def rebuild(self) -> dict[Variable, Variable]:
        """Apply a new loop made of the current slots; see `SlotView.rebuild`."""
        states, traced = self.of_kind(SlotKind.STATE), self.of_kind(SlotKind.TRACED)
        op = self.op
        if self.is_unfrozen:
            name = op.name if self.new_name is None else self.new_name
            op = type(op).from_body(self.body(), name=name)
        fed = [*states, *self.of_kind(SlotKind.CONSTANT)]
        op = self.kept(op, [*fed, *traced, None])
        if self.is_unfrozen:
            op.remember(self.op, [slot.former for slot in (*fed, *traced)])
        new = op.make_node(self.n_steps, *(slot.outer_input for slot in fed)).outputs
        last, traces, values, n_done = op.split_outputs(new)
        pairs = [
            *((slot.last, v) for slot, v in zip(states, last, strict=True)),
            *((slot.outer_output, v) for slot, v in zip(states, traces, strict=True)),
            *((slot.outer_output, v) for slot, v in zip(traced, values, strict=True)),
            (self.n_done, n_done),
        ]
        return {old: made for old, made in pairs if old is not None and made is not None}


@op_debug_information.register(LoopOperator)
def _op_debug_information(op: LoopOperator, node: Apply) -> dict[Apply, dict[Variable, str]]:
    """Say in a debugprint what each input of a body is, and where it comes from."""
    index, *inputs = op.fgraph.inputs
    roles = {index: "index"}
    for i, variable in enumerate(inputs):
        state = i < op.n_states
        roles[variable] = f"state-{i}" if state else f"constant-{i - op.n_states}"
    for i, variable in enumerate(node.inputs):
        roles.setdefault(variable, "most-steps" if i == 0 else roles[op.fgraph.inputs[i]])
    return {node: roles}
