"""Functions that write loops: `scan`, `for_loop`, `while_loop`, `map`, `reduce` and `filter`.

They are called like those of ``jax.lax``. What is carried and what is returned may be nested in
tuples, lists and dictionaries. A function that is given reads its arguments and nothing else: what
it needs of the graph around the loop is passed as ``constants``. Random generators are carried,
too: a step takes one and returns the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.raise_op import Assert
from pytensor.tensor.type import DenseTensorType, lscalar

from scanopt_cli.loop.body import Body, Symbolic
from scanopt_cli.loop.nesting import form, leaves, mapped, rebuilt
from scanopt_cli.loop.operator_base import as_step_count
from scanopt_cli.loop.operators import TracedLoop

_MOST_STEPS = 2**63 - 1


def scan(
    fn: Callable[..., tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    constants: Any = None,
    *,
    max_steps: Any = None,
    go_backwards: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Carry values through a loop, and collect a value of each step.

    Parameters
    ----------
    fn
        Called once, with symbolic arguments ``fn(carry, x)``, or ``fn(carry, x, constants)`` if
        there are constants. It returns the next carry, of the form and types of ``init``, and what
        is to be collected, which may be None.
    init
        The initial carry: variables, arrays or numbers, nested at will.
    xs
        Arrays whose rows are ``x``, nested at will, all of one length; None is given for none.
    constants
        What ``fn`` reads besides, nested at will.
    max_steps
        How many steps there are, if ``xs`` does not say. If both do, the smaller number counts.
    go_backwards
        Whether ``x`` are the rows from the last to the first. What is collected is always in the
        order of the steps.
    name
        What the loop is called in printed graphs.

    Returns
    -------
    The last carry, which is ``init`` after no steps, and what was collected: of each value an array
    with one row a step.

    Raises
    ------
    TypeError
        If ``fn`` changes the type of a carried value, or returns what it cannot.
    ValueError
        If lengths are known to differ, there is neither ``xs`` nor ``max_steps``, or ``fn`` reads
        a variable that it was not given.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> total, totals = scan(lambda total, row: (total + row, total + row), 0.0, x)
    """
    arrays = [(f"xs{path}", pt.as_tensor_variable(value)) for path, value in leaves(xs)]
    n_steps = _number_of_steps(arrays, max_steps)
    outer = [*(array for _, array in arrays), *_variables(constants), n_steps]

    def step(carry: Any, index: Symbolic, inner: Sequence[Symbolic]) -> Step:
        rows, given, n = inner[: len(arrays)], inner[len(arrays) : -1], inner[-1]
        place = n - 1 - index if go_backwards else index
        x = rebuilt(xs, (row[place] for row in rows))
        returned = fn(carry, x, *_extra(constants, given))
        if not (isinstance(returned, tuple | list) and len(returned) == 2):
            raise TypeError("a step of scan returns a pair: the next carry, and what to collect")
        return Step(*returned)

    return _looped(step, init, n_steps, outer, name)


def for_loop(
    n_steps: Any,
    fn: Callable[..., tuple[Any, ...]],
    init: Any,
    constants: Any = None,
    *,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Carry values through a loop whose steps know their number; collect a value of each step.

    Parameters
    ----------
    n_steps
        How many steps there are.
    fn
        Called with the number of the step, from 0, and what is carried (and the constants, if there
        are any). It returns the next carry and what is to be collected, as in `scan`; and may
        return a third, a bool of no dimensions: if it is false, the step is the last one.
    init, constants, name
        As in `scan`. What is read row by row is a constant, of which ``fn`` takes the row.

    Returns
    -------
    The last carry, and what was collected, as in `scan`.

    Raises
    ------
    TypeError, ValueError
        As `scan` does.

    Examples
    --------
    >>> x = pt.vector("x")
    >>> gap = for_loop(x.shape[0] - 1, lambda i, _, x: (None, x[i + 1] - x[i]), None, x)[1]
    """

    def step(carry: Any, index: Symbolic, inner: Sequence[Symbolic]) -> Step:
        returned = fn(index, carry, *_extra(constants, inner))
        if not (isinstance(returned, tuple | list) and len(returned) in (2, 3)):
            raise TypeError(
                "a step of for_loop returns the next carry, what to collect, and perhaps whether "
                "to go on"
            )
        new, collected, *goes_on = returned
        return Step(new, collected, _condition(goes_on[0]) if goes_on else None)

    return _looped(step, init, as_step_count(n_steps), _variables(constants), name)


def while_loop(
    cond: Callable[..., Any],
    fn: Callable[..., Any],
    init: Any,
    constants: Any = None,
    *,
    max_steps: Any = _MOST_STEPS,
    name: str | None = None,
) -> Any:
    """Carry values through a loop for as long as a condition holds; return the last.

    Parameters
    ----------
    cond
        Called with what is carried (and the constants, if there are any); a bool of no dimensions.
        It is asked before each step, so there may be none.
    fn
        Called likewise; it returns the next carry.
    init, constants, name
        As in `scan`.
    max_steps
        The most steps. A derivative needs room for so many carried values: give it then.

    Raises
    ------
    TypeError, ValueError
        As `scan` does.
    """
    begins = _condition(cond(mapped(_as_variable, init), *_extra(constants, _variables(constants))))
    most = pt.switch(begins, as_step_count(max_steps), np.int64(0))

    def step(carry: Any, _: Variable, inner: Sequence[Variable]) -> Step:
        extra = _extra(constants, inner)
        new = fn(carry, *extra)
        return Step(new, None, _condition(cond(new, *extra)))

    return _looped(step, init, most, _variables(constants), name)[0]


def map(
    fn: Callable[..., Any],
    xs: Any,
    constants: Any = None,
    *,
    name: str | None = None,
) -> Any:
    """Return what ``fn`` returns for each row of ``xs``, as arrays with one row for each.

    Parameters and errors are those of `scan`; ``fn`` is called with a row and the constants.
    """
    return scan(lambda _, *given: (None, fn(*given)), None, xs, constants, name=name)[1]


def reduce(
    fn: Callable[..., Any],
    xs: Any,
    init: Any,
    constants: Any = None,
    *,
    go_backwards: bool = False,
    name: str | None = None,
) -> Any:
    """Return ``init`` combined with each row of ``xs`` in turn, by ``fn(carry, x)``.

    Parameters and errors are those of `scan`.
    """
    return scan(
        lambda *given: (fn(*given), None), init, xs, constants, go_backwards=go_backwards, name=name
    )[0]


def filter(
    fn: Callable[..., Any],
    xs: Any,
    constants: Any = None,
    *,
    name: str | None = None,
) -> Any:
    """Return the rows of ``xs`` for which ``fn`` is true, a bool of no dimensions.

    Parameters and errors are those of `scan`; ``fn`` is called with a row and the constants.
    """
    chosen = map(lambda *given: _condition(fn(*given)), xs, constants, name=name)
    (places,) = pt.nonzero(chosen)
    return mapped(lambda array: pt.as_tensor_variable(array)[places], xs)


class Step(NamedTuple):
    """What a step computes: the next carry, what to collect, and whether to go on."""

    carry: Any
    collected: Any
    goes_on: Variable | None = None


def _looped(
    step: Callable[[Any, Variable, Sequence[Variable]], Step],
    init: Any,
    n_steps: Variable,
    outer: Sequence[Variable],
    name: str | None,
) -> tuple[Any, Any]:
    """Return the last carry, and what was collected.

    ``step`` is called with the carry, the index, and what stands for ``outer`` in the body.
    """
    paths = [f"carry{path}" for path, _ in leaves(init)]
    values = [value for _, value in leaves(init)]
    types = [_as_variable(value).type for value in values]
    while True:
        index = lscalar("index")
        states = [kind.make_variable(path) for kind, path in zip(types, paths, strict=True)]
        inner = [variable.type() for variable in outer]
        made = step(rebuilt(init, iter(states)), index, inner)
        if form(made.carry) != form(init):
            raise TypeError(
                f"a step returns a carry of the form {form(made.carry)}, not {form(init)}"
            )
        next_states = _variables(made.carry)
        wider = [
            _joined(old.type, new.type, path, is_plain=_is_plain(value))
            for old, new, path, value in zip(states, next_states, paths, values, strict=True)
        ]
        if wider == types:
            break
        types = wider
    body = Body(
        index=index,
        states=states,
        next_states=next_states,
        traced=_variables(made.collected),
        condition=made.goes_on,
    )
    starts = [
        pt.constant(value, dtype=kind.dtype) if _is_plain(value) else _as_variable(value)
        for value, kind in zip(values, types, strict=True)
    ]
    constants = dict(zip(inner, outer, strict=True))
    outputs = TracedLoop.over(n_steps, body, starts, constants, name=name)
    n = len(states)
    collected = rebuilt(made.collected, iter(outputs[2 * n : -1]))
    return rebuilt(init, iter(outputs[:n])), collected


def _joined(old: Any, new: Any, path: str, *, is_plain: bool) -> Any:
    """Return the type of a carried value that is of type ``old`` before a step, and ``new`` after.

    A plain number takes the dtype that a step makes of it; a length that a step changes is open.
    """
    if old.is_super(new):
        return old
    are_tensors = isinstance(old, DenseTensorType) and isinstance(new, DenseTensorType)
    if are_tensors and old.ndim == new.ndim:
        shape = [a if a == b else None for a, b in zip(old.shape, new.shape, strict=True)]
        if old.dtype == new.dtype:
            return old.clone(shape=shape)
        if is_plain and np.can_cast(old.dtype, new.dtype, "same_kind"):
            return new
    raise TypeError(f"{path} is of type {old}; a step makes it {new}")


def _number_of_steps(arrays: Sequence[tuple[str, Variable]], max_steps: Any) -> Symbolic:
    """Return how many steps there are; a loop over rows of different numbers fails when it runs."""
    if not arrays and max_steps is None:
        raise ValueError("a scan needs xs or max_steps, to know how many steps there are")
    known: dict[int, str] = {}
    for path, array in arrays:
        if array.type.ndim == 0:
            raise ValueError(f"{path} has no dimension to go along")
        if array.type.shape[0] is not None:
            known.setdefault(array.type.shape[0], path)
    if len(known) > 1:
        (one, first), (other, second) = list(known.items())[:2]
        raise ValueError(f"{first} has {one} rows, and {second} has {other}")
    steps: list[Any] = [] if max_steps is None else [as_step_count(max_steps)]
    if arrays:
        length, *others = [_length(array) for _, array in arrays]
        if any(array.type.shape[0] is None for _, array in arrays) and others:
            message = f"the numbers of rows of {', '.join(path for path, _ in arrays)} differ"
            length = Assert(message)(length, *(pt.eq(length, other) for other in others))
        steps.append(length)
    return steps[0] if len(steps) == 1 else pt.minimum(*steps)


def _length(array: Symbolic) -> Symbolic:
    known = array.type.shape[0]
    return array.shape[0] if known is None else pt.constant(known, dtype="int64")


def _extra(constants: Any, values: Sequence[Variable]) -> tuple[Any, ...]:
    """Return the last argument of a function, if there are constants."""
    return () if constants is None else (rebuilt(constants, iter(values)),)


def _condition(value: Any) -> Variable:
    condition = pt.as_tensor_variable(value)
    if condition.type.ndim or condition.type.dtype != "bool":
        raise TypeError(f"a condition is a bool of no dimensions, not {condition.type}")
    return condition


def _variables(nest: Any) -> list[Variable]:
    return [_as_variable(value) for _, value in leaves(nest)]


def _as_variable(value: Any) -> Variable:
    if isinstance(value, Variable):
        return value
    # PyTensor makes a float32 of 0.5, and an int8 of 3.
    dtypes = {bool: "bool", int: "int64", float: config.floatX, complex: "complex128"}
    return pt.as_tensor_variable(value, dtype=dtypes.get(type(value)))


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | complex)
