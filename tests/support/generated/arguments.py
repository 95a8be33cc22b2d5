"""Values to run a planned graph on: 0, 1 and many steps, plain numbers and ugly ones."""

from __future__ import annotations

import numpy as np

from support.generated.operators import CHANGING_NAN
from support.generated.plans import BATCH, Input, Kind, Program, Role

MANY = 5
type Value = np.ndarray | np.random.Generator
_UGLY = (np.nan, np.inf, -np.inf, -0.0)


def arguments(program: Program, seed: int) -> tuple[tuple[Value, ...], ...]:
    """Return argument tuples: with many steps, with 0, with 1, and with many, NaN and infinities.

    A program with a fixed step count gets only the first and the last. Where simplifying may change
    a NaN, as of ``0 * inf``, the last has plain numbers too.
    """
    rng = np.random.default_rng(seed)
    fixed = program.loop.steps
    counts = (fixed, fixed) if isinstance(fixed, int) else (MANY, 0, 1, MANY - 1)
    plain = [_values(rng, program, steps) for steps in counts]
    if not CHANGING_NAN.isdisjoint(program.loop.operators):
        return tuple(plain)
    return (*plain[:-1], tuple(_ugly(rng, value) for value in plain[-1]))


def _values(rng: np.random.Generator, program: Program, steps: int) -> tuple[Value, ...]:
    return tuple(
        np.stack([_value(rng, plan, steps) for _ in range(BATCH)])
        if plan.name in program.batched
        else _value(rng, plan, steps)
        for plan in program.inputs
    )


def _value(rng: np.random.Generator, plan: Input, steps: int) -> Value:
    if plan.role is Role.GENERATOR:
        return rng.spawn(1)[0]
    if plan.role is Role.STEPS:
        return np.array(steps)
    if plan.role is Role.INNER_STEPS:
        return np.asarray(rng.choice([0, 1, 2, 2, 3, 3]))
    if plan.role is Role.INDEX:
        return np.asarray(rng.integers(-2, 4))
    rows = plan.rows + (steps if plan.role is Role.SEQUENCE else 0)
    shape = (rows, *plan.kind.shape)[-plan.ndim :] if plan.ndim else ()
    if plan.kind is Kind.INTEGER:
        return np.asarray(rng.integers(-4, 5, size=shape))
    return np.asarray(rng.normal(size=shape).round(2))


def _ugly(rng: np.random.Generator, value: Value) -> Value:
    """Return ``value`` with about a third of its floats replaced."""
    if isinstance(value, np.random.Generator) or value.dtype.kind != "f":
        return value
    replaced = rng.random(value.shape) < 1 / 3
    return np.where(replaced, rng.choice(_UGLY, size=value.shape), value)
