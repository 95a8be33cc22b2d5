"""Finds an expression for each node that a graph needs, by trying.

A `Planner` holds for each variable of the graph what the script will have in its place, so that a
candidate is evaluated on what it will get. It is kept if its results have the digests of the
variables that they stand for. Nothing is recursive: graphs may be deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.loop.nesting import leaves
from scanopt_cli.python_source import constants
from scanopt_cli.python_source.code import Binding, Candidate, Code, Leaf, Operand, code
from scanopt_cli.python_source.values import (
    CannotBeWrittenError,
    ValueCodes,
    shown,
    value_of_reference,
)


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One statement: what it makes, and by which expression.

    ``bare`` says whether constants stand in it as plain numbers where they may; ``unpacks`` says
    whether the value of the expression is a list of the results, and ``form`` how they are nested
    in it, if they are.
    """

    code: Code
    results: tuple[Variable, ...]
    bare: bool = True
    unpacks: bool = False
    form: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The statements that compute ``outputs`` from ``inputs``, in an order that works."""

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    steps: tuple[Step, ...]
    aliases: dict[Variable, Variable]
    hints: dict[Variable, str]

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the outputs, computed from other inputs."""
        known: dict[Variable, Any] = dict(zip(self.inputs, arguments, strict=True))
        for step in self.steps:
            value = step.code.evaluate(partial(_value, known, step.bare, self.aliases))
            found = [leaf for _, leaf in leaves(value)] if step.unpacks else [value]
            known.update(zip(step.results, found, strict=True))
        return [known[self.actual(output)] for output in self.outputs]

    def actual(self, variable: Variable) -> Variable:
        """Return the result of a step that stands for ``variable``."""
        return self.aliases.get(variable, variable)


def stands_bare(leaf: Operand, step_is_bare: bool) -> Code | None:
    """Return the plain number that stands for an operand, if one does."""
    if step_is_bare and leaf.bare and isinstance(leaf.variable, Constant):
        return constants.plain_number(leaf.variable, rows=leaf.rows)
    return None


def _value(
    known: Mapping[Variable, Any], bare: bool, aliases: Mapping[Variable, Variable], leaf: Leaf
) -> Any:
    if not isinstance(leaf, Operand):
        return leaf.value
    plain = stands_bare(leaf, bare)
    if plain is not None:
        return plain.evaluate(value_of_reference)
    return known[aliases.get(leaf.variable, leaf.variable)]


class Planner:
    """Plans one graph: the whole, or that of a step; ``arguments`` stand for its inputs."""

    def __init__(
        self,
        inputs: Sequence[Variable],
        arguments: Sequence[Variable],
        candidates_of: Callable[[Apply, Planner], Iterator[Code | Candidate]],
        values: ValueCodes,
        where: str,
    ) -> None:
        self.inputs = tuple(inputs)
        self.hints: dict[Variable, str] = {}
        # For buffers of a loop, what stands for their rows behind the initial ones.
        self.rows_of: dict[Variable, Variable] = {}
        self._candidates_of = candidates_of
        self._values = values
        self._where = where
        self._sameness = Sameness()
        self._old = Digests(inputs, self._sameness)
        self._new = Digests(arguments, self._sameness)
        self._made: dict[Variable, Step] = {}
        self._aliases: dict[Variable, Variable] = {}
        self._known: dict[Variable, Any] = dict(zip(inputs, arguments, strict=True))

    def plan(self, outputs: Iterable[Variable]) -> Plan:
        """Return the statements that ``outputs`` need.

        Raises
        ------
        ScanoptError
            If a node cannot be written.
        """
        wanted = tuple(outputs)
        for output in wanted:
            self._make(output)
        return Plan(self.inputs, wanted, tuple(self._needed(wanted)), self._aliases, self.hints)

    def _make(self, wanted: Variable) -> None:
        waiting = [wanted]
        trials: dict[Any, Iterator[Candidate]] = {}
        current: dict[Any, Candidate] = {}
        while waiting:
            variable = waiting[-1]
            if variable in self._known:
                waiting.pop()
                continue
            node = variable.owner
            if node is not None and (loops := self._loops_read(node)):
                waiting += loops
                continue
            outputs = () if node is None else node.outputs
            made = next((v for v in outputs if v in self._known), None)
            if made is not None:
                self._take_output(variable, made)
                continue
            source = variable if node is None else node
            if source not in trials:
                trials[source] = self._trials(variable)
                current[source] = self._next(trials[source], variable)
            candidate = current[source]
            missing = [
                operand.variable
                for operand in candidate.code.operands
                if operand.variable not in self._known
            ]
            if missing:
                waiting += missing
            elif not self._accepts(variable, candidate):
                current[source] = self._next(trials[source], variable)

    def _loops_read(self, node: Apply) -> list[Variable]:
        """Return the outputs of loops that ``node`` reads and that nothing stands for yet."""
        return [
            v
            for v in node.inputs
            if v not in self._known and v.owner is not None and is_loop(v.owner)
        ]

    def _take_output(self, wanted: Variable, made: Variable) -> None:
        """Take an output that no result stands for of the node that made another one."""
        atom = Operand(made, Binding.ATOM, bare=False)
        taken = Candidate(code(f"{{}}.owner.outputs[{wanted.index}]", atom), (wanted,))
        if not self._accepts(wanted, taken):
            raise self._error(wanted, "")

    def _next(self, trials: Iterator[Candidate], variable: Variable) -> Candidate:
        reason = ""
        try:
            found = next(trials, None)
        except CannotBeWrittenError as error:
            found, reason = None, f": it holds {error}"
        if found is None:
            raise self._error(variable, reason)
        return found

    def _error(self, variable: Variable, reason: str) -> ScanoptError:
        what = variable if variable.owner is None else variable.owner.op
        kind = "constant" if variable.owner is None else "Op"
        return ScanoptError(
            f"the {kind} {shown(what)} cannot be written as Python{reason}",
            where=self._where,
            hint="it has to be what a constructor makes of values that have a text",
        )

    def _trials(self, variable: Variable) -> Iterator[Candidate]:
        node = variable.owner
        if node is None:
            if not isinstance(variable, Constant):
                raise ScanoptError(f"{variable} is no input of the graph", where=self._where)
            for expression in constants.candidates(variable, self._values):
                yield Candidate(expression, (variable,))
            return
        for found in self._candidates_of(node, self):
            yield found if isinstance(found, Candidate) else Candidate(found, (variable,))

    def _accepts(self, wanted: Variable, candidate: Candidate) -> bool:
        has_bare = any(
            operand.bare and isinstance(operand.variable, Constant)
            for operand in candidate.code.operands
        )
        return any(
            self._try(wanted, candidate, bare) for bare in ((True, False) if has_bare else (False,))
        )

    def _try(self, wanted: Variable, candidate: Candidate, bare: bool) -> bool:
        try:
            value = candidate.code.evaluate(partial(_value, self._known, bare, self._aliases))
            found = (leaf for _, leaf in leaves(value))
            results = dict(zip(candidate.results, found, strict=True))
            derived = {
                variable: expression.evaluate(partial(_value, results, False, {}))
                for variable, expression in candidate.derived
            }
            if not self._are_same({**results, **derived}, wanted):
                return False
        except Exception:
            return False
        self._known |= results | derived
        only = [part for part in candidate.code.parts if part]
        if len(only) == 1 and isinstance(only[0], Operand):
            self._aliases[wanted] = only[0].variable
            called = wanted.name or self.hints.get(wanted)
            if called:
                self.hints[only[0].variable] = called
            return True
        unpacks = isinstance(value, list | tuple)
        step = Step(candidate.code, candidate.results, bare, unpacks, candidate.form)
        self._made.update(dict.fromkeys(candidate.results, step))
        for variable, expression in candidate.derived:
            self._made[variable] = Step(expression, (variable,))
            rows = expression.operands[0].variable
            self.rows_of[variable] = rows
            self.hints[variable] = f"{rows.name or 'rows'}_buffer"
        return True

    def _are_same(self, made: dict[Variable, Any], wanted: Variable) -> bool:
        """Whether what was made of variables of the graph has their digests."""
        node = wanted.owner
        own = (wanted,) if node is None else node.outputs
        compared = [variable for variable in own if variable in made]
        if not compared or not all(isinstance(made[v], Variable) for v in compared):
            return False
        self._sameness.begin()
        return all(self._old.of(v) == self._new.of(made[v]) for v in compared)

    def _needed(self, outputs: Sequence[Variable]) -> list[Step]:
        """Return the steps that ``outputs`` need, each after those that it needs itself."""
        done: dict[Step, None] = {}
        waiting = [self._step(output) for output in reversed(outputs)]
        while waiting:
            step = waiting[-1]
            if step is None or step in done:
                waiting.pop()
                continue
            needs = [self._step(operand.variable) for operand in step.code.operands]
            missing = [need for need in needs if need is not None and need not in done]
            if missing:
                waiting += reversed(missing)
            else:
                done[step] = None
                waiting.pop()
        return list(done)

    def _step(self, variable: Variable) -> Step | None:
        return self._made.get(self._aliases.get(variable, variable))
