"""From a plan to PyTensor variables, by `pytensor.scan` itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

from support.generated.operators import OPERATORS
from support.generated.plans import (
    BATCH,
    GENERATOR,
    Alloc,
    Constant,
    Expression,
    InnerLoop,
    Input,
    Loop,
    Program,
    RandomNumbers,
    Read,
    Role,
)

READS: dict[str, Callable[..., Variable]] = {
    "whole": lambda xs: xs,
    "last": lambda xs: xs[-1],
    "first": lambda xs: xs[0],
    "last_two": lambda xs: xs[-2:],
    "second_and_third": lambda xs: xs[1:3],
    "backwards": lambda xs: xs[::-1],
    "every_other": lambda xs: xs[::2],
    "all_but_first": lambda xs: xs[1:],
    "all_but_last": lambda xs: xs[:-1],
    "list_of_first": lambda xs: xs[[0]],
    "list_of_lasts": lambda xs: xs[[-1, -2]],
    "list_of_both_ends": lambda xs: xs[[0, -1]],
    "first_overwritten": lambda xs: pt.set_subtensor(xs[0], 0),
    "last_joined": lambda xs: pt.concatenate([xs, xs[-1:]]),
    "sum": lambda xs: xs.sum(axis=0),
    "length": lambda xs: xs.shape[0],
    "sum_of_lasts": lambda xs, ys: xs[-1].sum() + ys[-1].sum(),
    "at_index": lambda xs, index: xs[index],
}
"""How results are read; each takes as many results as it has parameters (``index`` is an input)."""


def build(program: Program) -> tuple[list[Variable], list[Variable]]:
    """Return the inputs and outputs that ``program`` describes."""
    inputs = {plan.name: _input(plan, program.static_shapes) for plan in program.inputs}
    environment = inputs | {plan.name: _constant(plan, inputs) for plan in program.constants}
    results = _loop(program.loop, environment, "loop")
    if program.in_op_from_graph:
        results = _in_op_from_graph(results, list(inputs.values()))
    outputs = [_read(read, inputs | results) for read in program.reads]
    if program.gradient_of is not None:
        cost = _read(program.gradient_of, results).sum()
        wrt = [inputs[name] for name in program.wrt]
        gradient = _gradient(cost, wrt)
        outputs += gradient
        if program.second_gradient:
            outputs += _gradient(pt.stack([part.sum() for part in gradient]).sum(), wrt)
    if program.loop.generator is not None:
        outputs.append(results[GENERATOR])
    if not program.batched:
        return list(inputs.values()), outputs
    batches = {name: _batched(inputs[name]) for name in program.batched}
    replacements = {inputs[name]: batch for name, batch in batches.items()}
    outputs = list(vectorize_graph(outputs, replace=replacements))
    return list((inputs | batches).values()), outputs


def _gradient(cost: Variable, wrt: Sequence[Variable]) -> list[Variable]:
    return list(pt.grad(cost, wrt, disconnected_inputs="ignore", return_disconnected="zero"))


def _input(plan: Input, static: bool) -> Variable:
    if plan.role is Role.GENERATOR:
        return random_generator_type(plan.name)
    core = plan.kind.shape if static else (None,) * plan.kind.ndim
    leading = (None,) * (plan.ndim - plan.kind.ndim)
    return pt.tensor(plan.name, dtype=plan.kind.dtype, shape=(*leading, *core))


def _constant(plan: Constant | Alloc, inputs: Mapping[str, Variable]) -> Variable:
    if isinstance(plan, Alloc):
        rows = inputs[plan.rows] if isinstance(plan.rows, str) else plan.rows
        source = inputs[plan.source]
        return pt.alloc(source, rows, *source.shape)
    shape = (plan.rows, *plan.kind.shape) if plan.rows else plan.kind.shape
    values = np.full(shape, plan.value, dtype=plan.kind.dtype)
    if plan.ramp:
        values += np.arange(values.size, dtype=values.dtype).reshape(shape)
    return pt.constant(values, name=plan.name)


def _batched(variable: Variable) -> Variable:
    return pt.tensor(variable.name, dtype=variable.dtype, shape=(BATCH, *variable.type.shape))


def _evaluate(expression: Expression, environment: Mapping[str, Variable]) -> Variable:
    if expression.operator == "read":
        return environment[expression.operands[0]]
    if expression.operator == "constant":
        value = expression.operands[0]
        return pt.constant(value, dtype="int64" if isinstance(value, int) else "float64")
    operands = [
        _evaluate(operand, environment) if isinstance(operand, Expression) else operand
        for operand in expression.operands
    ]
    return OPERATORS[expression.operator](*operands)


def _read(read: Read, environment: Mapping[str, Variable]) -> Variable:
    return READS[read.style](*(environment[name] for name in read.results))


def _inner_loop(plan: InnerLoop, environment: Mapping[str, Variable]) -> Variable:
    return _read(plan.read, _loop(plan.loop, environment, plan.name))


def _loop(plan: Loop, environment: Mapping[str, Variable], title: str) -> dict[str, Variable]:
    """Return the results of the loop by name; ``environment`` holds what surrounds it."""
    # Stand-ins: `scan` itself folds constant and equal non-sequences and unrolls a single step.
    sources = [environment[item.source] for item in plan.non_sequences]
    non_sequences = [
        source.type(item.name) for source, item in zip(sources, plan.non_sequences, strict=True)
    ]
    originals = dict(zip(non_sequences, sources, strict=True))
    steps = environment[plan.steps] if isinstance(plan.steps, str) else plan.steps
    if plan.steps == 1:
        steps = pt.lscalar("one")
        originals[steps] = pt.constant(1, dtype="int64")

    def step(*arguments: Variable) -> tuple[list[Variable], until] | list[Variable]:
        inside = dict(zip(plan.step_names, arguments, strict=True))
        for item in plan.random:
            inside[GENERATOR], inside[item.name] = _random_numbers(item, inside)
        for inner in plan.inner:
            inside[inner.name] = _inner_loop(inner, inside)
        updates = [_evaluate(state.update, inside) for state in plan.states]
        updates += [inside[GENERATOR]] if plan.generator else []
        updates += [_evaluate(item.value, inside) for item in plan.maps]
        if plan.until is None:
            return updates
        return updates, until(_evaluate(plan.until, inside))

    results = pytensor.scan(
        step,
        sequences=[
            {
                "input": environment[item.source][:: -1 if item.reversed else 1],
                "taps": list(item.taps),
            }
            for item in plan.sequences
        ],
        outputs_info=[
            *(
                {"initial": environment[state.source], "taps": list(state.taps)}
                for state in plan.states
            ),
            *([{"initial": environment[plan.generator]}] if plan.generator else []),
            *(None for _ in plan.maps),
        ],
        non_sequences=non_sequences,
        n_steps=steps,
        go_backwards=plan.go_backwards,
        name=title,
        return_list=True,
        return_updates=False,
    )
    if originals:
        results = clone_replace(results, replace=originals)
    names = [item.name for item in plan.states]
    names += [GENERATOR] if plan.generator else []
    names += [item.name for item in plan.maps]
    return dict(zip(names, results, strict=True))


def _random_numbers(
    plan: RandomNumbers, inside: Mapping[str, Variable]
) -> tuple[Variable, Variable]:
    """Return the generator after the numbers are drawn, and the numbers."""
    mean = 0.0 if plan.mean is None else _evaluate(plan.mean, inside)
    size = plan.kind.shape or None
    return pt.random.normal(mean, 1.0, size=size, rng=inside[GENERATOR], return_next_rng=True)


def _in_op_from_graph(
    results: Mapping[str, Variable], inputs: Sequence[Variable]
) -> dict[str, Variable]:
    op = OpFromGraph(list(inputs), list(results.values()), name="loop_op")
    outputs = op(*inputs, return_list=True)
    return dict(zip(results, outputs, strict=True))
