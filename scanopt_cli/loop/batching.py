"""Vectorization of a TracedLoop: one loop whose states have batch dimensions.

PyTensor's default would run the loop once for each entry of the batch. `vectorize_graph` calls the
rule that is registered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import _vectorize_node, graph_replace, vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.raise_op import Assert
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.loop.body import Body, Symbolic
from scanopt_cli.loop.operators import TracedLoop

SAME_COUNT = Assert("the entries of a batch run different numbers of steps")
"""Checks, of a trace, that every entry of a batch has as many rows."""


@_vectorize_node.register(TracedLoop)
def vectorized(op: TracedLoop, node: Apply, *batched: Symbolic) -> list[Variable]:
    """Return the outputs of the loop for inputs with leading batch dimensions.

    All entries of a batch are given the same number of steps, which is checked when it runs. If
    each has a condition of its own, the loop runs until the last has ended; a trace must have as
    many rows for each, which is checked if it is read.

    Raises
    ------
    NotImplementedError
        If what is to be batched is no array.
    """
    ndim = max(_extra(old, new) for old, new in zip(node.inputs, batched, strict=True))
    if not ndim:
        return list(op.make_node(*batched).outputs)
    n_steps, *outer = batched
    if n_steps.type.ndim:
        first_count = n_steps.ravel()[0]
        n_steps = SAME_COUNT(first_count, pt.all(pt.eq(n_steps, first_count)))
    outer = [_padded(old, new, ndim) for old, new in zip(node.inputs[1:], outer, strict=True)]
    body = op.body
    initial, constants = outer[: op.n_states], outer[op.n_states :]
    lengths = batch_lengths(
        [new for old, new in zip(node.inputs[1:], outer, strict=True) if _extra(old, new)], ndim
    )
    moving = _batched_variables(body, initial, constants)
    ends_apart = body.condition in moving
    if ends_apart:
        body = _with_condition_of_each(body)
        initial = [
            *initial,
            *initial,
            pt.constant(True, dtype="bool"),
            pt.constant(0, dtype="int64"),
        ]
        moving = _batched_variables(body, initial, constants)

    replaced: dict[Variable, Symbolic] = {}
    for i, state in enumerate(body.states):
        if state in moving:
            if not isinstance(state.type, DenseTensorType):
                raise NotImplementedError(f"{op}: a state of type {state.type} cannot be batched")
            initial[i] = pt.alloc(initial[i], *lengths, *_last_lengths(initial[i], state.type.ndim))
            replaced[state] = _like(state, initial[i].type.shape[:ndim])
    for constant, value in zip(body.constants, constants, strict=True):
        if extra := _extra(constant, value):
            replaced[constant] = _like(constant, value.type.shape[:extra])

    computed = vectorize_graph(body.outputs, replaced)
    states = [replaced.get(v, v) for v in body.states]
    following = [
        _as_state(new, replaced[old], ndim) if old in replaced else new
        for old, new in zip(body.states, computed, strict=False)
    ]
    first = len(states)
    condition = None if body.condition is None else computed[-1]
    wider = Body(
        index=body.index,
        states=states,
        next_states=following,
        traced=computed[first : first + op.n_traced],
        condition=pt.any(condition) if ends_apart else condition,
    )
    given = {replaced.get(v, v): value for v, value in zip(body.constants, constants, strict=True)}
    made = TracedLoop.over(n_steps, wider, initial, given, name=op.name)
    last, traces, traced = made[:first], made[first : 2 * first], made[2 * first : -1]
    n_done = made[-1]
    found = [
        *(
            _rows_behind(v, ndim) if old in replaced else v
            for old, v in zip(body.states[: op.n_states], traces, strict=False)
        ),
        *(
            _rows_behind(v, _extra(old, new))
            for old, new, v in zip(body.traced, wider.traced, traced, strict=True)
        ),
    ]
    if ends_apart:
        counts = last[-1]
        found = [SAME_COUNT(trace, pt.all(pt.eq(counts, n_done))) for trace in found]
        n_done = counts
    return [*last[: op.n_states], *found, n_done]


def _with_condition_of_each(body: Body) -> Body:
    """Return the body of a loop of which each entry of a batch ends by its own condition.

    The states are the values, what the last step of the entry read of them, whether the entry still
    runs, and how many steps it ran. Once it has ended, its last step is repeated and the result
    dropped: what a step computes of values that it would never see need not have a derivative.
    """
    if not all(isinstance(v.type, DenseTensorType) for v in (body.index, *body.states)):
        raise NotImplementedError("a loop with a condition carries what is no array")
    values, read = ([v.type() for v in body.states] for _ in range(2))
    runs, count = pt.scalar(dtype="bool"), pt.lscalar()
    index = body.index.type()
    argument = {body.index: pt.switch(runs, index, count - 1)}
    argument |= {
        v: pt.switch(runs, value, old)
        for v, value, old in zip(body.states, values, read, strict=True)
    }
    computed = graph_replace(body.outputs, argument, strict=False)
    following = [pt.switch(runs, new, old) for new, old in zip(computed, values, strict=False)]
    goes_on = pt.and_(runs, computed[-1])
    return Body(
        index=index,
        states=[*values, *read, runs, count],
        constants=body.constants,
        next_states=[
            *following,
            *(argument[v] for v in body.states),
            goes_on,
            count + pt.cast(runs, "int64"),
        ],
        traced=computed[len(body.states) : -1],
        condition=goes_on,
    )


def _batched_variables(
    body: Body, initial: Sequence[Variable], constants: Sequence[Variable]
) -> set[Variable]:
    """Return the variables of a body that differ within the batch, in this or in a later step."""
    pairs = zip((*body.states, *body.constants), (*initial, *constants), strict=True)
    found = {inner for inner, outer in pairs if _extra(inner, outer)}
    nodes = list(toposort(body.outputs))
    while True:
        for node in nodes:
            if not found.isdisjoint(node.inputs):
                found.update(node.outputs)
        pairs = zip(body.states, body.next_states, strict=True)
        more = {old for old, new in pairs if new in found} - found
        if not more:
            return found
        found |= more


def batch_lengths(variables: Sequence[Symbolic], ndim: int) -> list[Symbolic]:
    """Return the lengths of the ``ndim`` leading dimensions that ``variables`` are broadcast to."""
    wide = [[v for v in variables if not v.type.broadcastable[axis]] for axis in range(ndim)]
    return [
        found[0].shape[axis] if found else pt.constant(1, dtype="int64")
        for axis, found in enumerate(wide)
    ]


def _extra(core: Variable, batched: Variable) -> int:
    """Return how many batch dimensions a variable has."""
    return int(getattr(batched.type, "ndim", 0) - getattr(core.type, "ndim", 0))


def _padded(core: Variable, batched: Symbolic, ndim: int) -> Symbolic:
    """Return a batched variable with all the batch dimensions; one without any as it is."""
    extra = _extra(core, batched)
    if isinstance(core.type, ScalarType) and extra:
        raise NotImplementedError("a number cannot be batched, only an array of no dimensions")
    return pt.expand_dims(batched, tuple(range(ndim - extra))) if 0 < extra < ndim else batched


def _last_lengths(variable: Symbolic, count: int) -> list[Symbolic]:
    """Return the lengths of the last ``count`` dimensions."""
    return [variable.shape[i] for i in range(variable.type.ndim - count, variable.type.ndim)]


def _like(core: Symbolic, batch: Sequence[int | None]) -> Symbolic:
    return core.type.clone(shape=(*batch, *core.type.shape))()


def with_batch(value: Symbolic, wanted: Any, lengths: Sequence[Symbolic]) -> Symbolic:
    """Return a value with the batch dimensions of type ``wanted``, on which it may not depend."""
    missing = wanted.ndim - value.type.ndim
    is_one = (*(True,) * missing, *value.type.broadcastable)
    pairs = zip(is_one[: len(lengths)], wanted.broadcastable, strict=False)
    if not missing and not any(one and not is_wanted for one, is_wanted in pairs):
        return value
    return pt.alloc(value, *lengths, *_last_lengths(value, wanted.ndim - len(lengths)))


def _as_state(new: Symbolic, state: Symbolic, ndim: int) -> Symbolic:
    """Return a next value of the type of a batched state: one value for every entry."""
    whole = with_batch(new, state.type, [state.shape[i] for i in range(ndim)])
    return state.type.filter_variable(whole, allow_convert=True)


def _rows_behind(trace: Symbolic, ndim: int) -> Symbolic:
    """Return a trace with its rows behind the batch dimensions."""
    return pt.moveaxis(trace, 0, ndim) if ndim else trace
