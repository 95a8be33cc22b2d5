"""What a script defines first: functions that compute steps, and Ops that hold graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan

from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.errors import brief
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import inner_condition, is_loop
from scanopt_cli.loop.nesting import leaves
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.operators import TracedLoop
from scanopt_cli.python_source import loop_names
from scanopt_cli.python_source.code import (
    Candidate,
    Code,
    Definition,
    Operand,
    Part,
    Reference,
    call,
    code,
    listed,
    quoted,
    text,
)
from scanopt_cli.python_source.loop_calls import Signature, filter_calls, loop_calls
from scanopt_cli.python_source.operations import by_function, candidates, plainly
from scanopt_cli.python_source.planning import Plan, Planner
from scanopt_cli.python_source.public_ops import public_op
from scanopt_cli.python_source.scan_calls import UNNAMED, scan_calls
from scanopt_cli.python_source.values import (
    CannotBeWrittenError,
    ValueCodes,
    snake_case,
    value_of_reference,
)
from scanopt_cli.serialization.unpickler.constructors import builds_its_graph

_FROZEN = Reference("pytensor.graph.fg", "FrozenFunctionGraph.from_io")
_OF_ANY_LOOP = ("truncate_gradient", "profile", "allow_gc", "strict", "name")


@dataclass(slots=True, eq=False)
class Function(Definition):
    """A function of the script, which computes ``plan`` and returns ``returned``."""

    plan: Plan = field(kw_only=True)
    parameters: tuple[str | None, ...] = field(kw_only=True)
    returned: Code = field(kw_only=True)
    signature: Signature | None = field(default=None, kw_only=True)


class Definitions:
    """The functions and Ops that a script defines, in an order in which each finds the others.

    With ``as_calls``, loops are calls where they have that form: Scans of ``pytensor.scan``,
    TracedLoops of the functions of `scanopt_cli.loop`.
    """

    def __init__(self, where: str, *, as_calls: bool = True) -> None:
        self.values = ValueCodes(self.op)
        self.made: list[Definition] = []
        self._where = where
        self._as_calls = as_calls
        self._sameness = Sameness(gradients=True)
        self._functions: dict[tuple[bytes, bool, Signature | None], Function] = {}
        self._ops: dict[int, tuple[Op, Code | None]] = {}
        self._equal: dict[tuple[bytes, str | None], Code] = {}

    def planner(self, inputs: Sequence[Variable], arguments: Sequence[Variable]) -> Planner:
        """Return a planner for a graph over ``inputs``, for which ``arguments`` stand."""
        return Planner(inputs, arguments, self.candidates, self.values, self._where)

    def candidates(self, node: Apply, planner: Planner) -> Iterator[Code | Candidate]:
        """Yield expressions for a node, the most readable first."""
        rows = planner.rows_of.get(node.inputs[0]) if node.inputs else None
        if rows is not None:
            # What it takes of a buffer may be what the call of ``scan`` returns.
            yield code("{}", Operand(rows, bare=False))
        if is_loop(node):
            titles = loop_names.results(node, planner.hints)
            for variable, title in titles.items():
                planner.hints.setdefault(variable, title)
            if type(node.op) is Scan and self._as_calls:
                names = loop_names.parameters(node, planner.hints)
                yield from scan_calls(node, lambda: self._step(node.op, names), titles)
            elif type(node.op) is TracedLoop and self._as_calls:
                yield from self._loop_calls(node, planner)
        if self._as_calls:
            yield from filter_calls(node, lambda loop: self._loop_calls(loop, planner))
        yield from candidates(node.op, node, self)
        yield from by_function(core_op(node.op), node, self)
        if isinstance(node.op, SymbolicOp) and builds_its_graph(node.op):
            constructed = self.values.constructed(node.op)
            yield Candidate(call(constructed, node.inputs), tuple(node.outputs))
        self._define(core_op(node.op), loop_names.parameters(node, planner.hints))
        yield from plainly(node, self)

    def op(self, op: Op) -> Code | None:
        """Return an Op that has a public name, or that holds a graph; of others, nothing."""
        known = self._ops.get(id(op))
        if known is None:
            found = public_op(op)
            if found is not None:
                self._ops[id(op)] = op, code("{}", found)
            else:
                self._define(op, ())
            known = self._ops.get(id(op))
        return None if known is None else known[1]

    def _define(self, op: Op, names: Sequence[str | None]) -> None:
        """Define an Op that holds a graph, whose inputs are called ``names``."""
        if id(op) in self._ops:
            return
        key = (self._sameness.of_op(op), _own_name(op))
        if key in self._equal:
            self._ops[id(op)] = op, self._equal[key]
            return
        graph = getattr(op, "fgraph", None)
        if not isinstance(graph, AbstractFunctionGraph):
            return
        made = self._first_equal(op, self._forms(op, graph, names))
        self.made.append(made)
        self._equal[key] = code("{}", made)
        self._ops[id(op)] = op, self._equal[key]

    def _first_equal(self, op: Any, forms: Sequence[Code]) -> Definition:
        """Return the first of the ``forms`` that makes ``op``, else the last."""
        places = getattr(op, "destroy_map", None) if isinstance(op, Scan) else None
        settings = {"destroy_map": self.values.of(places)} if places else {}
        for form in forms:
            with suppress(Exception):
                value = form.evaluate(value_of_reference)
                for name, setting in settings.items():
                    setattr(value, name, setting.evaluate(value_of_reference))
                if self._sameness.of_op(value) == self._sameness.of_op(op):
                    return Definition(_title(op), value, form, settings)
        try:
            value = forms[-1].evaluate(value_of_reference)
        except Exception as error:
            raise CannotBeWrittenError(f"{type(op).__name__} ({brief(error)})") from error
        made = Definition(_title(op), value, forms[-1])
        if isinstance(op, OpFromGraph):
            made.note = "It is differentiated by its graph, not in its own way."
        return made

    def _forms(
        self, op: Any, graph: AbstractFunctionGraph, names: Sequence[str | None]
    ) -> list[Code]:
        """Return expressions that make an Op which holds ``graph``, the last of which is plain."""
        what = "outputs" if isinstance(op, OpFromGraph) else "step"
        function = self._function(graph, names, hint=_own_name(op), what=what)
        variables = self.values.variables([v.type for v in graph.inputs])
        inner = code("inner := {}", variables)
        results = code("{}(*inner)" if len(graph.outputs) != 1 else "[{}(*inner)]", function)
        if isinstance(op, OpFromGraph):
            return self._from_graph(op, inner, results)
        cls = self.values.of(type(op))
        if isinstance(op, Scan):
            options = {
                name: self.values.of(getattr(op, name))
                for name, default in zip(_OF_ANY_LOOP, (-1, None, True, True, UNNAMED), strict=True)
                if (getattr(op, name) or None) != default
            }
            return [call(cls, [inner, results, self.values.of(op.info)], options)]
        if isinstance(op, LoopOperator):
            body = call(_FROZEN, [inner, results])
            # What it remembers of the Scan that it was, and a name that nobody gave, are left out.
            unsaid = {"fgraph", "former", *([] if _own_name(op) else ["name"])}
            return [call(cls, [body], self.values.arguments(op, without=unsaid))]
        if isinstance(op, ScalarLoop):
            return [self._scalar_loop(op, cls, variables, results, len(graph.outputs))]
        if isinstance(op, Composite):
            return [call(cls, [inner, results])]
        body = call(_FROZEN, [inner, results])
        given = self.values.arguments(op, without={"fgraph"})
        return [call(cls, (), {**given, "fgraph": body})]

    def _from_graph(self, op: Any, inner: Code, results: Code) -> list[Code]:
        options: dict[str, Part] = {}
        if op.is_inline:
            options["inline"] = text("True")
        if op.name:
            options["name"] = quoted(str(op.name))
        if op.destroy_map:
            options["destroy_map"] = self.values.of(op.destroy_map)
        plain = call(
            Reference("pytensor.compile.builders", "OpFromGraph"), [inner, results], options
        )
        forms = [plain]
        # What is no graph, such as a closure that differentiates it, cannot be written.
        with suppress(CannotBeWrittenError):
            more = dict(options)
            for option, attribute in (
                ("pullback", "pullback_overrides"),
                ("pushforward", "pushforward_overrides"),
                ("connection_pattern", "_connection_pattern"),
            ):
                if getattr(op, attribute, None) is not None:
                    more[option] = self.values.of(getattr(op, attribute))
            if type(op) is not OpFromGraph:
                own = getattr(op, "__props__", ())
                more |= {name: self.values.of(getattr(op, name)) for name in own}
            forms.insert(0, call(self.values.of(type(op)), [inner, results], more))
        return forms

    def _scalar_loop(
        self, op: ScalarLoop, cls: Code, variables: Code, results: Code, n_outputs: int
    ) -> Code:
        n_states = n_outputs - op.is_while
        parts = [f"inner[:{n_states}]", f"(made := {{}})[:{n_states}]", f"inner[{n_states}:]"]
        if op.is_while:
            parts.append("made[-1]")
        head = code("(inner := {})", variables)
        given = code(f"{{}}[:{n_states}], {', '.join(parts[1:])}", head, results)
        return code("{}({})", cls, given)

    def _loop_calls(self, node: Apply, planner: Planner) -> Iterator[Candidate]:
        title = _own_name(node.op)

        def define(
            graph: FrozenFunctionGraph,
            names: Sequence[str | None],
            signature: Signature,
            what: str,
        ) -> Definition:
            return self._function(graph, names, hint=title, what=what, signature=signature)

        inner = loop_names.parameters(node, planner.hints)
        return loop_calls(node, define, dict(zip(node.inputs, inner, strict=True)))

    def _step(self, op: Scan, names: Sequence[str | None]) -> Function:
        condition = inner_condition(op) is not None
        return self._function(op.fgraph, names, hint=_own_name(op), until=condition)

    def _function(
        self,
        graph: AbstractFunctionGraph,
        names: Sequence[str | None],
        *,
        hint: str | None,
        until: bool = False,
        what: str = "step",
        signature: Signature | None = None,
    ) -> Function:
        """Return a function that computes ``graph``; equal ones are one.

        Of ``until``, the last output is the condition to stop. If it has a ``signature``, its
        arguments and results are nested.
        """
        key = (self._sameness.of_graph(graph), until, signature)
        known = self._functions.get(key)
        if known is not None:
            return known
        arguments = [variable.type() for variable in graph.inputs]
        planner = self.planner(graph.inputs, arguments)
        planner.hints.update(
            {v: name for v, name in zip(graph.inputs, names, strict=False) if name is not None}
        )
        plan = planner.plan(graph.outputs)
        outputs = [Operand(v, bare=False) for v in graph.outputs]
        if signature is not None:
            returned = signature.result(outputs)
        else:
            returned = _returned(outputs[:-1] if until else outputs, always=until)
        if until:
            stop = call(Reference("pytensor.scan.utils", "until"), outputs[-1:])
            returned = code("{}, {}", returned, stop)

        def value(*given: Any) -> Any:
            flat = [leaf for _, leaf in leaves(given)]
            found = dict(zip(plan.outputs, plan.run(flat), strict=True))
            return returned.evaluate(
                lambda leaf: found[leaf.variable] if isinstance(leaf, Operand) else leaf.value
            )

        called = f"{hint}_{what}" if hint else what
        parameters = (*names, *[None] * (len(graph.inputs) - len(names)))
        made = Function(
            *(called, value),
            plan=plan,
            parameters=parameters,
            returned=returned,
            signature=signature,
        )
        self._functions[key] = made
        self.made.append(made)
        return made


def _returned(outputs: Sequence[Operand], *, always: bool) -> Code:
    if len(outputs) == 1 and not always:
        return code("{}", outputs[0])
    return listed(outputs)


def _own_name(op: Any) -> str | None:
    name = getattr(op, "name", None)
    return name if isinstance(name, str) and name != UNNAMED else None


def _title(op: Op) -> str:
    """Return what a script calls an Op: by its name, or its class."""
    return _own_name(op) or snake_case(type(op).__name__)[0]
