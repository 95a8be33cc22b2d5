"""Many steps of a loop, in parts (`recurrences`): each part of all steps, and then the next part.

1. What depends on no state, of which LLVM makes vectors.
2. The recurrences. The states after `AT_ONCE` steps of an affine one are computed from the states
   before, with the products of the factors and the sums of the terms, which wait for no state. What
   rounding adds to a state is bounded as in single steps: by the sizes of the products and the
   terms of which the state is the sum.
3. What else the steps do, in vectors, too.

Where a state that is computed so is not finite, or a factor is so small that it has lost digits,
the parts have no effect, and the steps are done one after the other.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from scanopt_cli.loop.affine_forms import AffineForm
from scanopt_cli.loop.codegen.graphs import GraphWriter
from scanopt_cli.loop.codegen.hints import ONE_AT_A_TIME
from scanopt_cli.loop.codegen.values import Length, Number, Value
from scanopt_cli.loop.recurrences import DistributedBody, Recurrence
from scanopt_cli.loop.vector_math import vector_function

AT_ONCE = 4
"""So many steps of an affine recurrence are computed from the same states."""
MOST_STEPS = 256
"""So many steps are done in parts; then the next ones are."""
_ROOM = MOST_STEPS + 24
"""The size of a buffer: no power of 2, or all would compete for the same cache lines."""
_LONG, _TRUTH = ir.IntType(64), ir.IntType(1)

type _Row = Sequence[Number | None]
"""Factors of some states, or terms; ``None`` for nothing."""
type _Known = dict[Variable, Value]
"""What stands for the variables of a step."""


class StepsInParts:
    """Writes some steps of a body, in parts.

    Parameters
    ----------
    body
        The body.
    first, n_steps
        The index of the first step, and how many there are: a multiple of `AT_ONCE`.
    states, constants
        What stands for them before the steps.
    """

    def __init__(
        self,
        writer: GraphWriter,
        body: DistributedBody,
        first: Length,
        n_steps: Length,
        states: Sequence[Value],
        constants: Sequence[Value],
    ) -> None:
        self._writer = writer
        self._body = body
        self._first = first
        self._n_steps = n_steps
        self._states = body.inputs[1 : 1 + len(states)]
        outside = zip(body.inputs[1 + len(states) :], constants, strict=True)
        self._outside: _Known = {
            **dict(outside),
            **{self._states[i]: states[i] for i in body.arrays},
        }
        self._last = {
            i: writer.variable(_number(states[i])) for one in body.recurrences for i in one.states
        }
        self._before: dict[Variable, Any] = {}
        self._n_taken: Counter[str] = Counter()
        self._old: dict[int, Any] = {}
        self._new: dict[int, Any] = {}

    def write(self) -> Any:
        """Write the steps; return whether they are sure to be good."""
        self._write_before()
        recurrences = sorted(self._body.kept, key=lambda one: one.level)
        for _, independent in groupby(recurrences, lambda one: one.level):
            self._write_recurrences(list(independent))
        return self._write_after()

    def last(self, state: int) -> Number:
        """Return a state that is a number, after the steps."""
        dtype = np.dtype(self._states[state].type.dtype)
        return Number(self._writer.builder.load(self._last[state]), dtype)

    def _room(self, kind: Any) -> Any:
        """Return a buffer for a number of each step, which other loops of the function use, too.

        No loop that is done in parts is within another one.
        """
        rooms = self._writer.rooms.setdefault((self._writer.builder.function.name, str(kind)), [])
        self._n_taken[str(kind)] += 1
        if len(rooms) < self._n_taken[str(kind)]:
            rooms.append(cgutils.alloca_once(self._writer.builder, kind, _ROOM))
        return rooms[self._n_taken[str(kind)] - 1]

    # What depends on no state.

    def _write_before(self) -> None:
        if not self._body.before:
            return
        for variable in self._body.before:
            kind = self._writer.data_type(variable.type.dtype)
            self._before[variable] = self._room(kind)
        with self._writer.loop(self._n_steps) as at:
            index = self._writer.count(self._writer.add(self._first, at))
            known = {self._body.inputs[0]: index, **self._outside}
            self._write(known, self._body.before, in_vectors=True)
            for variable, place in self._before.items():
                dtype = np.dtype(variable.type.dtype)
                self._writer.store(_number(known[variable]), self._entry(place, at), dtype)

    # The recurrences.

    def _write_recurrences(self, independent: Sequence[Recurrence]) -> None:
        """Write recurrences of which none depends on another, and keep the states of each step."""
        writer, builder = self._writer, self._writer.builder
        for i in (i for one in independent for i in one.states):
            first = builder.load(self._last[i])
            # In one buffer, LLVM would find that a step reads what the one before it read.
            self._old[i], self._new[i] = self._room(first.type), self._room(first.type)
            builder.store(first, self._entry(self._old[i], 0))
        count = AT_ONCE if any(one.forms for one in independent) else 1
        n = writer.quotient(self._n_steps, count)
        with writer.loop(n, lambda: ONE_AT_A_TIME) as repetition:
            at = writer.multiply(repetition, count)
            for one in independent:
                if one.forms is None:
                    for k in range(count):
                        self._write_step(one, writer.add(at, k))
                else:
                    self._write_affine(one, one.forms, at)

    def _write_step(self, one: Recurrence, at: Length) -> None:
        """Write one step of a recurrence."""
        known = self._step(at)
        known |= {self._states[i]: self.last(i) for i in one.states}
        new = [self._body.outputs[i] for i in one.states]
        self._write(known, new)
        for i, number in [(i, self._value(known, v)) for i, v in zip(one.states, new, strict=True)]:
            self._keep(i, at, number, is_last=True)

    def _write_affine(self, one: Recurrence, forms: Sequence[AffineForm], at: Length) -> None:
        """Write several steps of an affine recurrence, from the states before all of them."""
        first = [self.last(i) for i in one.states]
        factors: Sequence[_Row] = []
        terms: _Row = []
        for k in range(AT_ONCE):
            known = self._step(self._writer.add(at, k))
            own = [[self._factor(known, form, j) for j in range(len(first))] for form in forms]
            added = [None if f.term is None else self._value(known, f.term) for f in forms]
            if k:
                terms = [self._sum(row, terms, b) for row, b in zip(own, added, strict=True)]
                factors = [self._combined(row, factors) for row in own]
            else:
                factors, terms = own, added
            for i, row, term in zip(one.states, factors, terms, strict=True):
                new = self._sum(row, first, term)
                assert new is not None
                self._keep(i, self._writer.add(at, k), new, is_last=k == AT_ONCE - 1)

    def _keep(self, state: int, at: Length, number: Number, *, is_last: bool) -> None:
        """Keep a state after the step ``at``, which is that before the next one."""
        self._writer.store(number, self._entry(self._new[state], at), number.dtype)
        after = self._entry(self._old[state], self._writer.add(at, 1))
        self._writer.store(number, after, number.dtype)
        if is_last:
            self._writer.builder.store(number.code, self._last[state])

    def _factor(self, known: _Known, form: AffineForm, state: int) -> Number | None:
        return self._value(known, form.factors[state]) if state in form.factors else None

    def _combined(self, row: _Row, factors: Sequence[_Row]) -> _Row:
        """Return a row of the product of two matrices."""
        columns = [[each[j] for each in factors] for j in range(len(row))]
        return [self._sum(row, column, None) for column in columns]

    def _sum(self, row: _Row, values: _Row, term: Number | None) -> Number | None:
        """Return the sum of a term and of products of factors and values."""
        for factor, value in zip(row, values, strict=True):
            if factor is not None and value is not None:
                product = factor, value
                term = self._product(*product) if term is None else self._added(*product, term)
        return term

    def _product(self, factor: Number, value: Number) -> Number:
        return value if _is_one(factor) else self._writer.called(operator.mul, factor, value)

    def _added(self, factor: Number, value: Number, term: Number) -> Number:
        """Return a product and a term: by one operation of the processor, if it has one.

        LLVM, left to choose, may join what the steps wait for with what they do not.
        """
        writer = self._writer
        if _is_one(factor):
            with writer.ordered():
                return writer.called(operator.add, value, term)
        codes = [number.code for number in (factor, value, term)]
        kind = codes[0].type
        both = writer.builder.module.declare_intrinsic(
            "llvm.fmuladd", [kind], ir.FunctionType(kind, [kind] * 3)
        )
        return Number(writer.builder.call(both, codes), term.dtype)

    # What else the steps do.

    def _write_after(self) -> Any:
        """Write the rest of the steps; return whether all of it is sure to be good."""
        writer, builder = self._writer, self._writer.builder
        n_lost = cgutils.alloca_once_value(builder, _LONG(0))
        arrays = [self._body.outputs[i] for i in self._body.arrays]
        totals = {
            one.states[0]: one.total for one in self._body.recurrences if one.total is not None
        }
        affine = [one for one in self._body.kept if one.forms is not None]
        places = [*totals, *(i for one in affine for i in one.states)]
        nothing = {
            dtype: writer.variable(writer.number(0, dtype))
            for dtype in {self._states[i].type.dtype for i in places}
        }
        with writer.loop(self._n_steps) as at:
            known = self._step(at)
            new = {i: self._row(self._new, i, at) for i in self._new}
            for i, number in new.items():
                known.setdefault(self._body.outputs[i], number)
            self._write(known, [*totals.values(), *arrays], in_vectors=True)
            for i, term in totals.items():
                total = writer.called(operator.add, self.last(i), self._value(known, term))
                builder.store(total.code, self._last[i])
            for one in affine:
                for i in one.states:
                    self._add(nothing, self._zero(new[i]))
                for factor in (f for form in one.forms or () for f in form.factors.values()):
                    lost = builder.zext(self._may_lose_digits(self._value(known, factor)), _LONG)
                    builder.store(builder.or_(builder.load(n_lost), lost), n_lost)
        for i in totals:
            self._add(nothing, self._zero(self.last(i)))
        is_sure = builder.icmp_unsigned("==", builder.load(n_lost), _LONG(0))
        for dtype, place in nothing.items():
            zero, found = writer.number(0, dtype).code, builder.load(place)
            is_sure = builder.and_(is_sure, builder.fcmp_ordered("==", found, zero))
        return is_sure

    def _zero(self, number: Number) -> Number:
        """Return zero times a number, which is zero if the number is finite, and else NaN."""
        return self._writer.called(operator.mul, number, self._writer.number(0, number.dtype))

    def _may_lose_digits(self, factor: Number) -> Any:
        """Return whether products of such factors may be so small that they lose digits."""
        writer, builder = self._writer, self._writer.builder
        if _is_one(factor):
            return _TRUTH(0)
        least = np.finfo(factor.dtype).tiny ** (1 / (AT_ONCE + 1))
        size = writer.called(abs, factor).code
        is_small = builder.fcmp_unordered("<", size, writer.number(least, factor.dtype).code)
        is_some = builder.fcmp_unordered("!=", size, writer.number(0, factor.dtype).code)
        return builder.and_(is_small, is_some)

    def _add(self, sums: Mapping[str, Any], number: Number) -> None:
        place = sums[str(number.dtype)]
        known = Number(self._writer.builder.load(place), number.dtype)
        total = self._writer.called(operator.add, known, number)
        self._writer.builder.store(total.code, place)

    # Variables of a step.

    def _step(self, at: Length) -> _Known:
        """Return what is known of a step, which is ``at`` steps after the first one."""
        load, index = self._writer.load, self._writer.count(self._writer.add(self._first, at))
        before = {
            v: load(self._entry(place, at), np.dtype(v.type.dtype))
            for v, place in self._before.items()
        }
        states = {self._states[i]: self._row(self._old, i, at) for i in self._old}
        return {self._body.inputs[0]: index, **self._outside, **before, **states}

    def _row(self, places: Mapping[int, Any], state: int, at: Length) -> Number:
        """Return a state that is kept of each step."""
        place = self._entry(places[state], at)
        return self._writer.load(place, np.dtype(self._states[state].type.dtype))

    def _entry(self, place: Any, at: Length) -> Any:
        return self._writer.builder.gep(place, [self._writer.code(at)])

    def _write(
        self, known: _Known, wanted: Sequence[Variable], *, in_vectors: bool = False
    ) -> None:
        """Write the nodes of a step that compute some variables, but for what is known."""
        for node in toposort(wanted, blockers=list(known)):
            if all(v in known for v in node.outputs):
                continue
            inputs = [known[v] if v in known else self._writer.value(v) for v in node.inputs]
            made = self._made(node, inputs, in_vectors=in_vectors)
            known |= {v: one for v, one in zip(node.outputs, made, strict=True) if one is not None}

    def _made(
        self, node: Apply, inputs: Sequence[Value], *, in_vectors: bool
    ) -> Sequence[Value | None]:
        function = vector_function(node) if in_vectors else None
        if function is None:
            return self._writer.made_by(node, inputs)
        each = [function.make_node(v) for v in node.inputs]
        return [self._writer.made_by(n, [v])[0] for n, v in zip(each, inputs, strict=True)]

    def _value(self, known: _Known, variable: Variable) -> Number:
        self._write(known, [variable])
        return _number(known[variable] if variable in known else self._writer.value(variable))


def _number(value: Value) -> Number:
    assert isinstance(value, Number)
    return value


def _is_one(number: Number) -> bool:
    return isinstance(number.code, ir.Constant) and bool(number.code.constant == 1)
