"""Inner graphs: finding those of an Op, and replacing them.

A loop can hide in the body of another loop, in an OpFromGraph, or in the core Op of a Blockwise;
a naive walker sees none of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import cast

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import HasInnerGraph, HasMultipleInnerGraph, Op
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.errors import PassError
from scanopt_cli.ir.interning import check_kept

HELD_OPS = (
    *("core_op", "scalar_op", "binary_op", "base_rv_op", "true_branch", "false_branch"),
    *("pullback_overrides", "pushforward_overrides", "reduced_outputs"),
    *("indexed_inputs", "indexed_outputs"),
)
"""The attributes of an Op that hold other Ops."""

PULLBACK = "grad_of_"
"""The prefix of the name that PyTensor gives to a Scan's pullback."""
TANGENTS = "rop_of_"
"""The prefix of the name that PyTensor gives to the Scan that also carries a Scan's tangents."""


@cache
def derives(kind: type, base: type) -> bool:
    """Whether ``kind`` is a subclass of ``base``: of classes of Ops, faster than to ask Python."""
    return issubclass(kind, base)


def core_op(op: Op) -> Op:
    """Return the Op that a Blockwise applies to each entry of its batch; else ``op`` itself."""
    return cast("Blockwise", op).core_op if derives(type(op), Blockwise) else op


def op_name(op: Op) -> str:
    """Return the name of an Op that holds a body: its own, else that of its class."""
    core = core_op(op)
    return str(getattr(core, "name", None) or type(core).__name__)


def is_own_graph(op: Op) -> bool:
    """Whether an Op is an OpFromGraph of a program's own, not of a function of PyTensor's."""
    kind = type(op)
    return derives(kind, OpFromGraph) and (
        kind is OpFromGraph or not kind.__module__.startswith("pytensor.")
    )


def inner_graphs(op: Op) -> tuple[AbstractFunctionGraph, ...]:
    """Return every inner graph of ``op`` that can hold a loop, for reading."""
    core = core_op(op)
    if derives(type(core), HasMultipleInnerGraph) and not derives(type(op), Elemwise):
        return tuple(cast("HasMultipleInnerGraph", core).inner_graphs.values())
    return ()


def body_of(op: Op) -> FrozenFunctionGraph | None:
    """Return the body of an Op that can be given another, directly or in a Blockwise.

    A Scan and an OpFromGraph can, and so can the loops of `scanopt_cli.loop`.
    """
    core = core_op(op)
    if not derives(type(core), HasMultipleInnerGraph):
        return None
    if isinstance(core, Scan | OpFromGraph) or getattr(core, "takes_another_body", False):
        return cast("HasInnerGraph", core).fgraph  # type: ignore[return-value]
    return None


def with_body(op: Op, body: FunctionGraph) -> Op:
    """Return ``op`` with ``body`` in place of its own.

    Raises
    ------
    PassError
        If the types of the inputs or outputs of ``body`` are not those of the old body.
    """
    old = body_of(op)
    assert old is not None
    if [v.type for v in (*old.inputs, *old.outputs)] != [
        v.type for v in (*body.inputs, *body.outputs)
    ]:
        raise PassError(f"a rewrite inside {op} changed the types of its body's inputs or outputs")
    new_core: Op = core_op(op).clone_with_inner_graph(body)  # type: ignore[attr-defined]
    frozen = body_of(new_core)
    assert frozen is not None
    check_kept(body.outputs, frozen, op_name(op))
    return with_core(op, new_core)


def only_narrows(old: AbstractFunctionGraph, new: AbstractFunctionGraph) -> bool:
    """Whether the output types of ``new`` are those of ``old`` with more static lengths known."""
    pairs = [(v.type, w.type) for v, w in zip(old.outputs, new.outputs, strict=True)]
    return all(v.is_super(w) for v, w in pairs) and any(v != w for v, w in pairs)


def with_core(op: Op, core: Op) -> Op:
    """Return ``op`` with ``core`` in place of its `core_op`, which has the same signature."""
    if not isinstance(op, Blockwise):
        return core
    return Blockwise(
        core,
        signature=op.signature,
        name=op.name,
        gufunc_spec=op.gufunc_spec,
        destroy_map=op.destroy_map,
    )


def unfolded(graph: AbstractFunctionGraph) -> tuple[int, int]:
    """Return the number of nodes in the inner graphs of ``graph``, and how deep these are nested.

    Nodes are counted at each application. Takes time linear in the number of distinct nodes, which
    may be far smaller.
    """
    known: dict[int, tuple[int, int]] = {}
    counted: dict[int, list[tuple[AbstractFunctionGraph, int]]] = {}
    waiting = [graph]
    while waiting:
        current = waiting[-1]
        if id(current) not in counted:
            counted[id(current)] = [
                (body, count) for op, count in _distinct_ops(current) for body in all_graphs(op)
            ]
        inner = counted[id(current)]
        missing = [body for body, _ in inner if id(body) not in known]
        waiting += missing
        if not missing:
            known[id(waiting.pop())] = (
                sum(n * (len(body.apply_nodes) + known[id(body)][0]) for body, n in inner),
                max((1 + known[id(body)][1] for body, _ in inner), default=0),
            )
    return known[id(graph)]


def _distinct_ops(graph: AbstractFunctionGraph) -> list[tuple[Op, int]]:
    """Return each Op object of a graph, and how many nodes have it: many nodes share one."""
    counts = Counter(id(node.op) for node in graph.apply_nodes)
    by_id = {id(node.op): node.op for node in graph.apply_nodes}
    return [(by_id[number], count) for number, count in counts.items()]


def all_graphs(op: Op) -> tuple[AbstractFunctionGraph, ...]:
    """Return every graph that ``op`` holds: its own, and those of the Ops that it is made of."""
    found: dict[int, AbstractFunctionGraph] = {}
    waiting: list[object] = [op]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, Op):
            if id(part) not in seen:
                seen.add(id(part))
                if derives(type(part), HasMultipleInnerGraph):
                    graphs = cast("HasMultipleInnerGraph", part).inner_graphs
                    found.update((id(graph), graph) for graph in graphs.values())
                waiting.extend([held for name in HELD_OPS if (held := getattr(part, name, None))])
        elif isinstance(part, list | tuple | set | frozenset):
            waiting.extend(part)
        elif isinstance(part, Mapping):
            waiting.extend((*part.keys(), *part.values()))
    return tuple(found.values())


def walk(
    graph: AbstractFunctionGraph,
    into: Callable[[Op], Iterable[AbstractFunctionGraph]] = inner_graphs,
) -> Iterator[Apply]:
    """Yield every node of ``graph`` and of its inner graphs, each distinct inner graph once."""
    waiting = [graph]
    seen: set[int] = set()
    # Most nodes share their Op object with others, which is kept here so that its id stays its own.
    ops: dict[int, Op] = {}
    while waiting:
        inner = waiting.pop()
        if id(inner) not in seen:
            seen.add(id(inner))
            for node in inner.toposort():
                yield node
                if id(node.op) not in ops:
                    ops[id(node.op)] = node.op
                    waiting.extend(into(node.op))
