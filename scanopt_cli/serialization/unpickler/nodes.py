"""Variables and nodes from records, without recursion and without setting state."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.serialization.payload import constant_from, name_from, set_trace, shared_from
from scanopt_cli.serialization.unpickler.builder import Builder
from scanopt_cli.serialization.unpickler.records import Call, class_of_instance


def make_nodes(builder: Builder, record: Call) -> None:
    """Make the variable or node of ``record``, after all of its ancestors."""
    made = builder.made
    pending, entered = [record], set[int]()
    while pending:
        current = pending[-1]
        if id(current) in made:
            pending.pop()
            continue
        missing = [part for part in _parents(builder, current) if id(part) not in made]
        if not missing:
            pending.pop()
            _make(builder, current)
        elif id(current) in entered:
            raise ValueError("a node depends on itself")
        else:
            entered.add(id(current))
            pending += missing


def _class(builder: Builder, record: Any) -> type[Any]:
    cls = class_of_instance(record)
    found = builder.resolve(cls) if cls is not None else None
    return found if isinstance(found, type) else type(None)


def _parents(builder: Builder, record: Call) -> list[Call]:
    state = builder.state(record)
    if issubclass(_class(builder, record), Apply):
        return [part for part in state["inputs"] if issubclass(_class(builder, part), Variable)]
    return [state["owner"]] if state.get("owner") is not None else []


def _make(builder: Builder, record: Call) -> None:
    """Make one variable without an owner, or one node with all its outputs."""
    builder.uses.count(record.args, record.state)
    cls, state = _class(builder, record), builder.state(record)
    if issubclass(cls, Variable):
        if state.get("owner") is not None:
            raise ValueError("a variable's owner does not know it")
        builder.made[id(record)] = _root(builder, cls, state)
        return
    if not issubclass(cls, Apply):
        raise ValueError("a variable's owner is not a node")
    inputs = [builder.expect(part, Variable) for part in builder.copied(state["inputs"])]
    outputs = []
    for index, part in enumerate(state["outputs"]):
        if not issubclass(_class(builder, part), Variable):
            raise ValueError("an output of a node is not a variable")
        inner = builder.state(part)
        if (
            inner.get("owner") is not record
            or inner.get("index") != index
            or id(part) in builder.made
        ):
            raise ValueError("an output of a node belongs to another")
        kind = builder.expect(inner["type"], Type)
        outputs.append(_decorated(builder, kind.make_variable(name_from(inner.get("name"))), inner))
    builder.made[id(record)] = Apply(builder.expect(state["op"], Op), inputs, outputs)
    for part, variable in zip(state["outputs"], outputs, strict=True):
        builder.made[id(part)] = variable


def _root(builder: Builder, cls: type[Any], state: dict[str, Any]) -> Variable:
    kind, name = builder.expect(state["type"], Type), name_from(state.get("name"))
    if issubclass(cls, SharedVariable):
        (value,) = builder.state(state["container"])["storage"]
        given = _data(builder, value)
        made = shared_from(kind, given, name, cls)
        _check_converted(builder, given, made.get_value(borrow=True))
        return _decorated(builder, made, state)
    if issubclass(cls, Constant):
        given = _data(builder, state["data"])
        constant = constant_from(kind, given, name)
        _check_converted(builder, given, constant.data)
        return _decorated(builder, constant, state)
    return _decorated(builder, kind.make_variable(name), state)


def _data(builder: Builder, record: Any) -> Any:
    """Return the contents of a Constant or shared variable, of which lists become arrays."""
    made = builder.value(record)
    return builder.copied(made) if isinstance(made, list | tuple | np.ndarray) else made


def _check_converted(builder: Builder, given: Any, held: Any) -> None:
    """Count an array that was made of another, in a dtype that may be wider."""
    if held is not given and isinstance(held, np.ndarray):
        builder.copied(held)


def _decorated(builder: Builder, variable: Variable, state: dict[str, Any]) -> Variable:
    """Keep where the variable was made, the one thing in its tag that is worth keeping."""
    tag = state.get("tag")
    if type(tag) is Call and type(tag.state) is dict:
        set_trace(variable, tag.state.get("trace"), builder.traces)
    return variable
