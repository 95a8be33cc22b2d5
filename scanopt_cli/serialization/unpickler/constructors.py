"""How each kind of op and type is made by its own constructor from plain properties.

Nothing is taken from a file but constructor arguments, and a few attributes that rewrites and
subclasses set, each named here. What a constructor would copy without looking and what is imported
or called later is withheld: the op then has what its class gives it, and the comparison in
`scanopt_cli.serialization.unpickler.op_state` tells whether the file asked for anything else.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from pytensor.assumptions.specify import SpecifyAssumptions
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.printing import Print
from pytensor.scalar.basic import Cast, Composite, ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.optimize import ScipyWrapperOp
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape_i

from scanopt_cli.ir.scan_view import may_be_preallocated
from scanopt_cli.serialization.unpickler.allowlist import PULLBACKS
from scanopt_cli.serialization.unpickler.dropping import CACHES

_WITHHELD = frozenset({"nfunc_spec", "gufunc_spec", "global_fn", "broadcastable"})
"""Constructor arguments that keep their defaults: what they hold is imported or called later."""

_RENAMED = {"sparse_grad": "structured"}
"""Constructor arguments that are kept under another name."""

_PRINTED = frozenset({"__str__", "__repr__", "shape", "dtype", "ndim", "size", "min", "max"})
_PRINTED |= {"mean", "std", "sum"}
_MOST_PRINTED = 1_000
# As many as NumPy's arrays have.
_MOST_AXES = 64
_NOWHERE = object()


class StateError(Exception):
    """The state of an op or a type is not what its constructor makes."""


def make(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Return an instance of ``cls``, an Op or Type class, from the properties in ``state``.

    Raises
    ------
    StateError
        If a property is not of the kind that the constructor is for.
    """
    name = state.get("name")
    if issubclass(cls, ScalarOp) and not (name is None or str(name).isidentifier()):
        # Backends make names of functions and literals of it.
        raise StateError(f"{name!r} is not the name of a scalar op")
    if issubclass(cls, OpFromGraph):
        return _make_from_graph(cls, state)
    if issubclass(cls, ScipyWrapperOp):
        made: Any = object.__new__(cls)
        made._fn = made._fn_wrapped = None
        return _with_own_attributes(made, state)
    if issubclass(cls, Scan):
        return _make_scan(cls, state)
    if issubclass(cls, Composite):
        inner = _inner_graph(state)
        made = _briefly(cls(list(inner.inputs), list(inner.outputs), name=state["name"]))
        if "identity" in state:  # a rewrite for C sets it on what a reduction combines numbers by
            if state["identity"] != _identity(inner.outputs[0]):
                raise StateError("its identity is not that of its formula")
            made.identity = state["identity"]
        return made
    if issubclass(cls, ScalarLoop):
        return _make_scalar_loop(cls, state)
    if issubclass(cls, RandomVariable) and name != getattr(cls, "name", name):
        raise StateError(f"{name!r} is not the name of its distribution")
    if issubclass(cls, Type) and len(_listed(state.get("shape"))) > _MOST_AXES:
        raise StateError(f"it has more than {_MOST_AXES} axes")
    axes: dict[type, str] = {Shape_i: "i", CAReduce: "axis"}
    for kind, attribute in axes.items():
        if issubclass(cls, kind) and any(axis < 0 for axis in _listed(state.get(attribute))):
            # Only what makes these Ops counts axes from the end; generated code does not.
            raise StateError(f"attribute {attribute!r} counts axes from the end")
    if issubclass(cls, SpecifyAssumptions):
        return cls(dict(state["assumptions"]))
    if issubclass(cls, Print) and not set(state.get("attrs", ())) <= _PRINTED:
        raise StateError("it prints attributes that are not plain properties of arrays")
    sources = argument_sources(cast(Hashable, cls))
    given = {argument: state[attribute] for argument, attribute in sources if attribute in state}
    return cls(**given)


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, tuple | list) else (value,)


def _identity(variable: Any) -> Any:
    """Return the identity of the scalar Op that computes ``variable``, before casts."""
    while variable.owner is not None and isinstance(variable.owner.op, Cast):
        variable = variable.owner.inputs[0]
    return None if variable.owner is None else getattr(variable.owner.op, "identity", None)


def _briefly(composite: Any) -> Any:
    """Give a Composite the short name of a large one if its formula would be long.

    It is written out as a formula, in which what is computed once stands as often as it is used.
    """
    sizes: dict[Any, int] = {}
    for node in composite.fgraph.toposort():
        own = len(str(node.op)) if isinstance(node.op, Composite) else 1
        size = own + sum(sizes.get(variable, 1) for variable in node.inputs)
        sizes.update(dict.fromkeys(node.outputs, size))
    if sum(sizes.get(variable, 1) for variable in composite.outputs) > _MOST_PRINTED:
        composite._name = "Composite{...}"
    return composite


@cache
def argument_sources(cls: Hashable) -> tuple[tuple[str, str], ...]:
    """Return each argument of the constructor of ``cls`` with the attribute that holds it."""
    parameters = inspect.signature(cast(type, cls)).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        names += getattr(cls, "__props__", ())
    return tuple((name, _RENAMED.get(name, name)) for name in names if name not in _WITHHELD)


def _make_from_graph(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Make an op around an inner graph without running the subclass's code for building one."""
    inner = _inner_graph(state)
    n_inputs, n_outputs = len(inner.inputs), len(inner.outputs)
    pattern = state["_connection_pattern"]
    if pattern is not None and [len(row) for row in pattern] != [n_outputs] * n_inputs:
        raise StateError("its connection pattern does not fit its inner graph")
    overwritten = state.get("destroy_map") or {}
    if any(
        output not in range(n_outputs) or any(i not in range(n_inputs) for i in places)
        for output, places in overwritten.items()
    ):
        raise StateError("it overwrites an input that it does not have")
    if not set(state["kwargs"]) <= {"on_unused_input"}:
        raise StateError("it has options that PyTensor does not know")
    if not set(state.get("_init_kwargs", ())) <= {"inline", "strict", "name"}:
        raise StateError("it would be made anew with options of its own")
    inputs = _types(state, "input_types", inner.inputs)
    outputs = _types(state, "output_types", inner.outputs)
    if not _are_implied(inputs, [variable.type for variable in inner.inputs]):
        raise StateError("its input types do not fit its inner graph")
    if not _are_implied([variable.type for variable in inner.outputs], outputs):
        raise StateError("its output types do not fit its inner graph")
    made: Any = object.__new__(cls)
    OpFromGraph.__init__(
        made,
        [kind.make_variable() for kind in inputs],
        [kind.make_variable() for kind in outputs],
        inline=state["is_inline"],
        pullback=_override(state["pullback_overrides"], n_inputs),
        pushforward=_override(state["pushforward_overrides"], n_outputs),
        connection_pattern=pattern,
        name=state["name"],
        destroy_map=state.get("destroy_map"),
        fgraph=inner,
        on_unused_input="ignore",
    )
    made.kwargs = state["kwargs"]
    return _with_own_attributes(made, state)


def builds_its_graph(op: SymbolicOp) -> bool:
    """Whether the graph of an Op is what its class builds for its properties."""
    arguments = [kind.make_variable() for kind in op.input_types]
    try:
        outputs = op.build_inner_graph(*arguments)
        return bool(FrozenFunctionGraph.from_io(arguments, outputs) == op.fgraph)
    except Exception:
        return False


def _override(value: Any, count: int) -> Any:
    """Return an override of a derivative: one graph, or a list of ``count``."""
    parts = value if isinstance(value, list) else [value]
    if isinstance(value, list) and len(value) != count:
        raise StateError("its gradient is overridden for more or fewer variables than it has")
    if not all(
        part is None or isinstance(part, OpFromGraph) or part in PULLBACKS for part in parts
    ):
        raise StateError("its gradient is overridden by something that is not a graph")
    return value


def _types(state: Mapping[str, Any], name: str, variables: Any) -> list[Type]:
    types = state[name]
    if len(types) != len(variables) or not all(isinstance(kind, Type) for kind in types):
        raise StateError(f"attribute {name!r} does not fit its inner graph")
    return list(types)


def _are_implied(known: Sequence[Type], declared: Sequence[Type]) -> bool:
    """Whether a variable of each type that is ``known`` is one of the type that is ``declared``."""
    return all(wide.is_super(narrow) for narrow, wide in zip(known, declared, strict=True))


def _with_own_attributes(made: Any, state: Mapping[str, Any]) -> Any:
    """Set the attributes that a subclass adds to an inner-graph op, and no others.

    An attribute counts as the subclass's own if it is one of its properties or a constructor in
    its line of classes names it. What rewriters and linkers look up and run is never among them.
    """
    own = set(getattr(made, "__props__", ()))
    for cls in type(made).__mro__:
        code = getattr(vars(cls).get("__init__"), "__code__", None)
        own.update(code.co_names if code is not None else ())
    for name in state.keys() - vars(made).keys():
        hidden = inspect.getattr_static(type(made), name, None)
        if name not in own - _WITHHELD or callable(hidden) or isinstance(hidden, property):
            raise StateError(f"attribute {name!r} is not one that its constructor sets")
        vars(made)[name] = state[name]
    for cls in type(made).__mro__:
        missing = {
            name
            for name in _attributes_set(cls) - vars(made).keys() - CACHES
            if name[0] != "_" and inspect.getattr_static(made, name, _NOWHERE) is _NOWHERE
        }
        if missing:
            raise StateError(f"attribute {min(missing)!r} is missing")
    return made


@cache
def _attributes_set(cls: Hashable) -> frozenset[str]:
    """Return the attributes that the properties and the constructor of a class name as its own."""
    found = set(vars(cls).get("__props__", ()))
    code = getattr(vars(cls).get("__init__"), "__code__", None)
    if code is not None:
        found |= {i.argval for i in dis.get_instructions(code) if i.opname == "STORE_ATTR"}
    return frozenset(found)


class _StandIn(Op):
    """Computes outputs of any types, in place of the inner graph of a Scan that is being made."""

    __props__ = ()

    def perform(self, *_: object) -> None:
        """Raise an error: nobody evaluates it."""
        raise NotImplementedError


def _make_scan(cls: type[Scan], state: Mapping[str, Any]) -> Scan:
    inner, info = _inner_graph(state), state["info"]
    if not isinstance(info, ScanInfo):
        raise StateError("its info is not a plain one")
    if state["profile"] not in (None, False, True):
        raise StateError("its profile is not a plain switch")
    if info.n_inner_inputs != len(inner.inputs) or info.n_inner_outputs != len(inner.outputs):
        raise StateError("its info does not fit its inner graph")
    arguments = {
        name: state[name] for name in ("truncate_gradient", "name", "profile", "allow_gc", "strict")
    }
    # The constructor looks at types alone, and would copy a graph three times.
    inputs = [variable.type() for variable in inner.inputs]
    outputs = [variable.type() for variable in inner.outputs]
    Apply(_StandIn(), inputs, outputs)
    made = cls(inputs, outputs, info, **arguments)
    made.fgraph = inner
    wanted = _types(state, "output_types", made.output_types)
    if not _are_implied(made.output_types, wanted):
        raise StateError("its output types do not fit its inner graph")
    made.output_types = wanted
    preallocated = _list_of(bool, list(state["mitmots_preallocated"]))
    may_be = may_be_preallocated(info)
    if len(preallocated) != len(may_be) or any(
        is_set and not may for is_set, may in zip(preallocated, may_be, strict=True)
    ):
        raise StateError("its buffers do not fit its info")
    made.mitmots_preallocated = tuple(preallocated)  # a setting decides when the op is made
    # a rewrite and make_node set these on the op that they are given
    for name in ("vector_seqs", "vector_outs"):
        if name in state:
            setattr(made, name, _list_of(bool, state[name]))
    if "view_map" in state:
        views = state["view_map"].items()
        made.view_map = {int(output): _list_of(int, inputs) for output, inputs in views}
    return made


def _list_of(kind: type, value: Any) -> list[Any]:
    if type(value) is not list or any(type(part) is not kind for part in value):
        raise StateError(f"a list of {kind.__name__} is something else")
    return value


def _make_scalar_loop(cls: type[ScalarLoop], state: Mapping[str, Any]) -> ScalarLoop:
    inner = _inner_graph(state).unfreeze()
    update, until = list(inner.outputs), None
    if state["is_while"]:
        until = update.pop()
    inputs = list(inner.inputs)
    states, constants = inputs[: len(update)], inputs[len(update) :]
    return cls(states, update, constants, until, name=state["name"])


def _inner_graph(state: Mapping[str, Any]) -> FrozenFunctionGraph:
    inner = state.get("fgraph")
    if not isinstance(inner, FrozenFunctionGraph):
        raise StateError("it has no frozen inner graph")
    return inner
