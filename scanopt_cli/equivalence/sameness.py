"""What counts as equal (names? gradients?), by hash or exactly; keys of Ops, Types and graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.type import TensorType

from scanopt_cli.equivalence.definition import LoopForm
from scanopt_cli.equivalence.digests import Digests
from scanopt_cli.equivalence.encoding import Encoder, state
from scanopt_cli.equivalence.keys import Hashed, Interned
from scanopt_cli.equivalence.loop_forms import keys_at_a_glance, loop_form, output_keys
from scanopt_cli.equivalence.opaque import identity
from scanopt_cli.ir.connection_patterns import declared_pattern
from scanopt_cli.ir.interning import gradient_attributes
from scanopt_cli.ir.slots import HasSlots, SlotView

# Loops with slots that only their feeds distinguish are refined again where they are applied. In
# bodies of other loops, this many nodes may be visited so; beyond it, places distinguish such
# slots. Otherwise the time for nested loops, each applied twice, would double with every level.
_LOOKED_INTO = 200_000
# Created in great numbers, of integers and names alone, so Python's equality can be trusted.
_BY_VALUE = frozenset({TensorType, ScalarType, DimShuffle})
# Attributes of every OpFromGraph: encoded separately, or caches.
_OF_ANY_GRAPH = frozenset(
    {
        "_connection_pattern",
        "_fn",
        "_frozen_lop",
        "_frozen_rop",
        "_inner_shape_frozen",
        "_inner_shape_template",
        "_lop_op_cache",
        "_rop_op_cache",
        "destroy_map",
        "fgraph",
        "fn",
        "input_types",
        "is_inline",
        "kwargs",
        "name",
        "output_types",
        "pullback_overrides",
        "pushforward_overrides",
        "_init_kwargs",
        "tag",
    }
)


class Sameness:
    """One definition of when two things compute the same.

    ``opaque`` lists the values that are compared by identity, and ``by_state`` the Ops of other
    packages that declare no properties, one short text each.

    Parameters
    ----------
    gradients
        Whether overrides of gradients and ``inline`` of an OpFromGraph count: *is the same op*
        rather than *computes the same*.
    names
        Whether names count.
    exact
        Whether keys are exact, and valid for this object only, rather than hashes.
    in_order
        Whether it counts how a graph is written: the order of a loop's slots, and the class and
        attributes of an OpFromGraph, for which packages have rewrites and code of their own. It
        takes half the time to tell loops apart.
    """

    def __init__(
        self,
        *,
        gradients: bool = False,
        names: bool = False,
        exact: bool = False,
        in_order: bool = False,
    ) -> None:
        self.in_order = in_order
        self.gradients = gradients
        self.names = names
        self.exact = exact
        self.opaque: list[str] = []
        self.by_state: list[str] = []
        self.depth = 0
        self._looked_into = 0
        self._keys: Hashed | Interned = Interned() if exact else Hashed()
        # By id, since this class decides when Ops are equal. The entry keeps the Op alive.
        self._ops: dict[int, tuple[Op, bytes]] = {}
        self._constants: dict[int, tuple[Constant, bytes]] = {}
        self._values: dict[Type | Op, bytes] = {}
        self._within: list[int] = []
        self._graphs: dict[int, tuple[AbstractFunctionGraph, bytes]] = {}
        self._forms: dict[int, tuple[Op, LoopForm]] = {}

    def key(self, tag: str, *content: Any) -> bytes:
        """Return the key of ``content``: any values, which may be keys of other things."""
        encoder = Encoder(self)
        encoder.encode(tag)
        for item in content:
            encoder.encode(item)
        return self._keys.key(b"".join(encoder.parts))

    def of_output(self, op: bytes, inputs: Sequence[bytes], position: int) -> bytes:
        """Return the key of an output of a node, from the keys of its Op and of its inputs.

        Keys have one length, so these bytes are unambiguous; those of `key` start differently.
        """
        return self._keys.key(b"\0%d:%b%b" % (position, op, b"".join(inputs)))

    def data(self, array: np.ndarray) -> bytes:
        """Return bytes that represent the content of a contiguous ``array``."""
        return self._keys.data(array)

    def of_type(self, kind: Type) -> bytes:
        """Return the key of a Type."""
        return self._by_value(kind, lambda: self.key("type", type(kind), state(kind)))

    def of_constant(self, constant: Constant) -> bytes:
        """Return the key of a constant."""
        known = self._constants.get(id(constant))
        if known is None:
            key = self.key("constant", constant, constant.name if self.names else None)
            known = self._constants[id(constant)] = (constant, key)
        return known[1]

    def of_op(self, op: Op) -> bytes:
        """Return the key of what an Op computes, whatever its inputs."""
        if id(op) in self._within:
            self.opaque.append(f"{type(op).__name__}, which holds itself")
            return self.key("opaque", identity(op))
        known = self._ops.get(id(op))
        if known is None:
            self._within.append(id(op))
            key = self._by_value(op, lambda: self.key("op", *self._op_content(op)))
            self._within.pop()
            known = self._ops[id(op)] = (op, key)
        return known[1]

    def of_graph(self, graph: AbstractFunctionGraph) -> bytes:
        """Return the key of a whole graph, which is independent of any graph around it."""
        known = self._graphs.get(id(graph))
        if known is None:
            if not (self.depth or self._within):
                self.begin()
            digests = Digests(graph.inputs, self)
            for node in graph.toposort():
                digests.add(node)
            types = [variable.type for variable in graph.inputs]
            outputs = [digests.of(output) for output in graph.outputs]
            known = (graph, self.key("graph", types, outputs))
            if isinstance(graph, FrozenFunctionGraph):
                self._graphs[id(graph)] = known
        return known[1]

    def form(self, op: Op) -> LoopForm:
        """Return the canonical form of a loop, independent of what it is applied to."""
        known = self._forms.get(id(op))
        if known is None:
            known = (op, loop_form(self, op))
            self._forms[id(op)] = known
        return known[1]

    def of_loop(self, of: Callable[[Variable], bytes], view: SlotView) -> dict[Variable, bytes]:
        """Return the key of each output of an applied loop."""
        return output_keys(self, of, view)

    def of_loop_at_a_glance(
        self, of: Callable[[Variable], bytes], view: SlotView
    ) -> dict[Variable, bytes]:
        """Return keys that differ only where those of `of_loop` do, without a look inside."""
        return keys_at_a_glance(self, of, view)

    def begin(self) -> None:
        """Begin with another graph, in which as many nodes may be visited again."""
        self._looked_into = 0

    def may_look_into(self, nodes: int) -> bool:
        """Count ``nodes`` of a body that are to be visited again; return whether they may be."""
        self._looked_into += nodes
        return self._looked_into <= _LOOKED_INTO

    def _by_value(self, item: Type | Op, make: Callable[[], bytes]) -> bytes:
        """Return a key from ``make``, which is called once for equal items of simple classes."""
        if type(item) not in _BY_VALUE:
            return make()
        known = self._values.get(item)
        if known is None:
            known = self._values[item] = make()
        return known

    def _op_content(self, op: Op) -> tuple[Any, ...]:
        if isinstance(op, Scan | HasSlots):
            kind = "scan" if isinstance(op, Scan) else type(op)
            return (kind, self.form(op).key, op.name if self.names else None)
        if isinstance(op, Blockwise) and isinstance(op.core_op, Scan):
            # The signature follows from the loop, but depends on the order of its slots.
            return ("blockwise", op.core_op, op.destroy_map)
        if isinstance(op, OpFromGraph):
            return self._graph_content(op)
        if type(op) is DimShuffle:
            order = [axis if axis == "x" else int(axis) for axis in op.new_order]
            return ("op", DimShuffle, int(op.input_ndim), order)
        if not hasattr(op, "__props__") and not type(op).__module__.startswith("pytensor."):
            self.by_state.append(type(op).__name__)
        # The ``__props__`` of a ScalarLoop leave out whether the last output is a condition.
        condition = (op.is_while,) if isinstance(op, ScalarLoop) else ()
        return ("op", type(op), state(op), *gradient_attributes(op), *condition)

    def _graph_content(self, op: OpFromGraph) -> tuple[Any, ...]:
        cls = type(op)
        content: tuple[Any, ...] = ("inner graph", op.destroy_map, op.fgraph)
        content += (op.name if self.names else None,)
        if self.gradients:
            overrides = (op.pullback_overrides, op.pushforward_overrides)
            content += (op.is_inline, overrides, declared_pattern(op))
        if self.in_order:
            content += (op.is_inline,)
        if self.gradients or self.in_order or cls.perform is not OpFromGraph.perform:
            # A subclass may differentiate or compute by its class and its own attributes.
            own = {**vars(op), **{name: getattr(op, name) for name in getattr(op, "__props__", ())}}
            content += (cls, {name: own[name] for name in sorted(own.keys() - _OF_ANY_GRAPH)})
        return content
