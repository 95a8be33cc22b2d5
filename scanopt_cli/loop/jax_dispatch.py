"""Loops in JAX: ``fori_loop``, ``while_loop``, and ``scan`` for a loop whose traces are read.

Importing this module registers the operators with PyTensor's JAX backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.link.jax.dispatch.basic import jax_funcify

from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.operators import Loop, TracedLoop
from scanopt_cli.loop.static_lengths import StaticLength

_MOST_BOUNDED = 1_000_000
"""The most steps of a loop with a condition whose derivative runs all of them, as a ``scan``."""


@jax_funcify.register(Loop)
def _loop(op: Loop, **kwargs: Any) -> Callable[..., Any]:
    step = _step(op, **kwargs)

    def loop(n_steps: Any, *inputs: Any) -> Any:
        states, constants = list(inputs[: op.n_states]), inputs[op.n_states :]
        known = _known(n_steps)
        if known is not None and known <= 0:
            pass  # JAX would trace a step, which may read a row of an array that has none
        elif op.is_while:
            states = _while_loop(step, known, n_steps, states, constants)
        else:
            # Bounds of one type, and no tracers if the number is known: then JAX makes a scan,
            # which it can differentiate. A negative number of steps is none.
            states = jax.lax.fori_loop(
                np.int64(0),
                jnp.asarray(n_steps, "int64") if known is None else np.int64(known),
                lambda index, states: list(step(index, *states, *constants)),
                states,
            )
        return states[0] if len(states) == 1 else tuple(states)

    return loop


@jax_funcify.register(TracedLoop)
def _traced_loop(op: TracedLoop, **kwargs: Any) -> Callable[..., Any]:
    if op.is_while:
        raise NotImplementedError(
            f"JAX cannot trace {op}: a condition ends it, so that the lengths of its traces are "
            "known only when it runs"
        )
    step = _step(op, **kwargs)

    def traced_loop(n_steps: Any, *inputs: Any) -> Any:
        states, constants = list(inputs[: op.n_states]), inputs[op.n_states :]
        n = _known(n_steps)
        if n is None:
            raise NotImplementedError(
                f"JAX cannot trace {op}: the lengths of its traces must be known when it is "
                "compiled, so the number of steps must be a constant"
            )
        if n <= 0:
            outputs = _shapes_of_a_step(step, states, constants)
            traces = [jnp.zeros((0, *v.shape), v.dtype) for v in outputs[op.n_states :]]
            return (*states, *(jax.tree.map(_alone, v) for v in states), *traces, jnp.int64(0))

        def run(states: Any, index: Any) -> Any:
            outputs = list(step(index, *states, *constants))
            return outputs[: op.n_states], outputs

        last, traces = jax.lax.scan(run, states, jnp.arange(n, dtype="int64"))
        of_states = [
            jax.tree.map(_with_start, start, trace)
            for start, trace in zip(states, traces, strict=False)
        ]
        return (*last, *of_states, *traces[op.n_states :], jnp.int64(n))

    return traced_loop


def _while_loop(
    step: Callable[..., Any], known: int | None, n_steps: Any, states: Any, constants: Any
) -> Any:
    """Return the last states of a loop with a condition, of at most ``n_steps`` steps.

    JAX differentiates no ``while_loop`` backwards. If the number is ``known`` and not too large,
    the derivative is that of a ``scan`` over as many steps, which passes states on once the loop
    has ended.
    """

    def whole(states: Any, arrays: Any) -> Any:
        def goes_on(carry: Any) -> Any:
            index, condition, _ = carry
            return condition & (index < n_steps)

        def run(carry: Any) -> Any:
            index, _, states = carry
            *states, condition = step(index, *states, *_merged(constants, arrays))
            return index + 1, condition, states

        return jax.lax.while_loop(goes_on, run, (jnp.int64(0), jnp.bool_(True), states))[-1]

    def bounded(states: Any, arrays: Any) -> Any:
        def run(carry: Any, index: Any) -> Any:
            def one(states: Any) -> Any:
                *states, condition = step(index, *states, *_merged(constants, arrays))
                return condition, states

            goes_on, states = carry
            return jax.lax.cond(goes_on, one, lambda states: (goes_on, states), states), None

        indices = jnp.arange(known, dtype="int64")
        return jax.lax.scan(run, (jnp.bool_(True), states), indices)[0][-1]

    arrays = [v for v in constants if _is_array(v)]
    if known is None or known > _MOST_BOUNDED:
        return whole(states, arrays)
    differentiable = jax.custom_jvp(whole)
    differentiable.defjvp(lambda primals, tangents: jax.jvp(bounded, primals, tangents))
    return differentiable(states, arrays)


def _is_array(value: Any) -> bool:
    """Whether JAX may follow a value; others, as lengths, have to stay the numbers they are."""
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))


def _merged(constants: Any, arrays: Any) -> list[Any]:
    """Return ``constants`` with ``arrays`` in place of those that are arrays."""
    given = iter(arrays)
    return [next(given) if _is_array(v) else v for v in constants]


@jax_funcify.register(StaticLength)
def _static_length(op: StaticLength, **kwargs: Any) -> Callable[..., Any]:
    compute = jax_funcify(op.fgraph, **kwargs)

    def static_length(*lengths: Any) -> Any:
        if any(_known(length) is None for length in lengths):
            return compute(*lengths)[0]
        with jax.ensure_compile_time_eval():
            return int(compute(*lengths)[0])

    return static_length


def _step(op: LoopOperator, **kwargs: Any) -> Callable[..., Any]:
    """Return the body as a function that returns a sequence, of values of the states' dtypes."""
    step: Callable[..., Any] = jax_funcify(op.fgraph, **{**kwargs, "fgraph_name": "loop_body"})
    return step


def _shapes_of_a_step(step: Callable[..., Any], states: Any, constants: Any) -> list[Any]:
    """Return what a step computes, as shapes; arrays without rows are given one to read."""
    lengthened = [
        jnp.zeros((1, *v.shape[1:]), v.dtype) if jnp.shape(v)[:1] == (0,) else v for v in constants
    ]
    return list(jax.eval_shape(step, jnp.int64(0), *states, *lengthened))


def _alone(start: Any) -> Any:
    """Return the trace of a state that no step changes."""
    return jnp.asarray(start)[None]


def _with_start(start: Any, trace: Any) -> Any:
    return jnp.concatenate([_alone(start), trace])


def _known(n_steps: Any) -> int | None:
    """Return the number of steps if it is known at compilation."""
    try:
        return int(n_steps)
    except jax.errors.ConcretizationTypeError:
        return None
