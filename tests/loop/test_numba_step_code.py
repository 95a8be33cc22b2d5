"""The source of steps on arrays, for Numba: which buffers there are, and what is read where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit
from pytensor.scalar.basic import UnaryScalarOp, same_out
from pytensor.tensor.elemwise import Elemwise

import scanopt_cli.loop.numba_dispatch  # noqa: F401
from scanopt_cli.loop import Body, Loop
from scanopt_cli.loop.numba_steps import StepCode, StepWriter


def code(step: Callable[..., list[Any]], states: list[Any], *constants: Any) -> StepCode:
    """Return the source of a step of arrays."""
    inputs = [v.type() for v in (*states, *constants)]
    index = pt.lscalar("index")
    outputs = step(index, *inputs)
    names = ["index", *(f"state_{i}" for i in range(len(states)))]
    names += [f"constant_{i}" for i in range(len(constants))]
    body = Body(
        index=index,
        states=inputs[: len(states)],
        constants=inputs[len(states) :],
        next_states=outputs[: len(states)],
        traced=outputs[len(states) :],
    )
    return StepWriter(body.freeze(), names, len(states), {}).write()


X, Y = pt.dvector("x"), pt.dvector("y")


def test_a_state_and_its_next_value_change_places() -> None:
    made = code(lambda i, x, c: [pt.tanh(x * c)], [X], Y)
    assert made.before.count("state_0 = np.ascontiguousarray(state_0)") == 1
    (name,) = made.outputs
    assert list(made.after) == [f"{name} = old_state_0"]
    assert not [line for line in made.step if line.startswith(f"{name} = ")]


SHARED: dict[str, Callable[..., list[Any]]] = {
    "kept by another state": lambda i, x, y: [pt.tanh(x), x],
    "a part of the result": lambda i, x, y: [pt.tanh(x)[::-1], y],
    "handed on": lambda i, x, y: [x, y],
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_is_kept_is_not_written_again(name: str) -> None:
    made = code(SHARED[name], [X, Y])
    assert not made.after
    kernels = [line for line in made.step if "np.empty" in line]
    # Not only if its length changes.
    assert len(kernels) == (name != "handed on")
    assert not any(line.startswith(" ") for line in kernels)


def test_rows_are_read_where_they_are() -> None:
    made = code(lambda i, x, m: [x * m[i] + m[i + 1]], [X], pt.dmatrix())
    assert sum("row_at(" in line for line in made.step) == 2
    assert not any("Subtensor" in str(value) for value in made.names.values())


def test_rows_from_one_to_another_are_read_where_they_are() -> None:
    made = code(lambda i, x, c: [x[1:] * c[i : i + 3] + c[:3]], [X], Y)
    assert sum("bounds_at(" in line for line in made.step) == 3


@pytest.mark.parametrize("step", [-1, 2])
def test_other_slices_are_called(step: int) -> None:
    made = code(lambda i, x: [x[::step] * 2], [X])
    assert not any("bounds_at(" in line for line in made.step)


def test_what_others_read_too_is_computed() -> None:
    def step(i: Any, x: Any, m: Any) -> list[Any]:
        row = m[i]
        return [x * row, row]

    made = code(step, [X], pt.dmatrix())
    assert not any("row_at(" in line for line in made.step)


def test_numbers_are_handed_to_kernels() -> None:
    state, factor = X.type(), pt.dscalar()
    body = Body(
        index=pt.lscalar("i"),
        states=[state],
        constants=[factor],
        next_states=[pt.tanh(state * factor)],
    )
    (last,) = Loop.over(2, body, [X], {factor: X[0] + 0.5})
    graph = pytensor.function([X], last, mode="NUMBA").maker.fgraph
    (op,) = (node.op for node in graph.apply_nodes if isinstance(node.op, Loop))
    made = StepWriter(op.fgraph, ["index", "state_0", "constant_0"], 1, {}).write()
    assert any("constant_0" in line for line in made.step)
    assert not any("= f" in line for line in made.step)


def test_numbers_and_other_operations_are_called() -> None:
    made = code(lambda i, x: [x + 1.0], [pt.dscalar()])
    assert not made.before
    assert not made.after


def buffers(made: StepCode) -> int:
    """Count the arrays that are allocated before the loop."""
    return sum("np.empty" in line for line in made.before)


def test_results_of_one_shape_share_buffers() -> None:
    made = code(lambda i, x: [pt.tanh(pt.sin(pt.cos(pt.sqr(pt.exp(x)))))], [X])
    assert buffers(made) == 3


SEPARATE: dict[str, tuple[Callable[..., list[Any]], int]] = {
    "read again later": (lambda i, x: [pt.tanh(pt.sin(pt.cos(e := pt.exp(x))) + e)], 4),
    "read as a part later": (lambda i, x: [pt.tanh(pt.sin(pt.cos(e := pt.exp(x))) + e[::-1])], 4),
    "of other lengths": (lambda i, x, y: [pt.tanh(pt.sin(pt.exp(x))), pt.cos(pt.exp(y))], 5),
    # The sum is written over the state.
    "of another dtype": (lambda i, x: [pt.tanh(pt.cast(pt.exp(x), "float32")) + x], 3),
    "read by none": (lambda i, x, y: [pt.tanh(pt.exp(x)), y], 2),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_other_results_have_buffers_of_their_own(name: str) -> None:
    step, count = SEPARATE[name]
    states = [X, Y] if "none" in name or "lengths" in name else [X]
    assert buffers(code(step, states)) == count


class Twice(UnaryScalarOp):
    """An Op whose code in Numba has no key."""


@numba_funcify.register(Twice)
def _twice(_op: Twice, **_: Any) -> Any:
    @numba_njit
    def twice(x: Any) -> Any:
        return 2 * x

    return twice


def test_what_has_no_key_is_not_cached() -> None:
    """Code of another Op without a key would be taken for it."""
    twice = Elemwise(Twice(same_out))
    assert code(lambda i, x: [twice(x)], [X]).key is None
    assert code(lambda i, x: [pt.tanh(x)], [X]).key is not None
