"""Remove the inputs and outputs of OpFromGraphs that nobody reads."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise

from scanopt_cli.facts import Fact
from scanopt_cli.ir.connection_patterns import declared_pattern
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.interning import check_kept
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class RemoveUnusedEnds(Pass):
    """Remove the inputs of an OpFromGraph that its graph does not read, and outputs without reader.

    Legal cases:

    1. An output that nothing reads goes, and what computes it alone. Where equal OpFromGraphs have
       equal inputs, PyTensor makes one of them: an output stays if any of them has a reader.
    2. An input goes that no remaining output is computed of, and outside what computed it alone.

    Both hold for a Blockwise of an OpFromGraph. The pass also works in every body.

    Preconditions: the OpFromGraph is of that class itself, without a gradient or a connection
    pattern of its own, and neither it nor its graph works in place. One input stays. An input of a
    Blockwise stays if it alone carries a batch dimension or tells its static length.

    What was removed no longer raises errors: a check in it, or a Blockwise whose unread input does
    not fit the others.

    Out of scope: OpFromGraphs that PyTensor inlines, and those that it makes of its own functions.
    """

    name: ClassVar[str] = "remove-unused-ends"
    everywhere: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Yield a rewrite for each OpFromGraph, those that read others before these."""
        nodes = [node for node in context.fgraph.toposort() if is_own(core_op(node.op))]
        read = _read_anywhere(nodes, context)
        for node in reversed(nodes):
            if node not in context.fgraph.apply_nodes:
                continue
            ends = unused_ends(node, read)
            if not ends.is_any:
                continue
            title = context.title(node)
            if ends.kept:
                context.missed(None, Code.ENDS_KEPT, ends.why, op=title, ends=ends.kept)
            if not ends.removed:
                continue
            context.passed(None, Code.ENDS_REMOVED, op=title, ends=ends.removed)
            replacements = _without(node, ends)
            new_node = next(iter(replacements.values())).owner
            assert new_node is not None
            context.keep_title(node, new_node)
            yield Rewrite(replacements)


@dataclass(frozen=True, slots=True)
class UnusedEnds:
    """What nobody reads of a node that applies an OpFromGraph.

    Attributes
    ----------
    inputs, outputs
        The places of what can be removed.
    kept
        What cannot, as ``input 0``.
    why
        Why not.
    """

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    kept: tuple[str, ...] = ()
    why: Reason | None = None

    @property
    def is_any(self) -> bool:
        """Whether there is anything."""
        return bool(self.removed or self.kept)

    @property
    def removed(self) -> tuple[str, ...]:
        """What can be removed, in words."""
        return _in_words(self.inputs, self.outputs)


def is_own(op: Op) -> bool:
    """Whether an Op is an OpFromGraph of a program's own, which stays when it is compiled."""
    if not isinstance(op, OpFromGraph) or op.is_inline:
        return False
    return type(op) is OpFromGraph or not type(op).__module__.startswith("pytensor.")


def unused_ends(node: Apply, read: Container[Variable]) -> UnusedEnds:
    """Return what nobody reads of a node that applies an OpFromGraph, directly or in a Blockwise.

    ``read`` has the outputs of the node that have a reader.
    """
    op: Any = core_op(node.op)
    outputs = [place for place, variable in enumerate(node.outputs) if variable not in read]
    left = [v for place, v in enumerate(op.fgraph.outputs) if place not in outputs]
    needed = set(ancestors(left))
    inputs = [place for place, v in enumerate(op.fgraph.inputs) if v not in needed]
    if not inputs and not outputs:
        return UnusedEnds()
    why = _why_left(node)
    if why is not None:
        return UnusedEnds(kept=_in_words(inputs, outputs), why=why)
    staying = _that_must_stay(node, inputs)
    return UnusedEnds(
        inputs=tuple(place for place in inputs if place not in staying),
        outputs=tuple(outputs),
        kept=_in_words(staying, ()),
        why=Fact(Why.CARRIES_BATCH if isinstance(node.op, Blockwise) else Why.ONE_INPUT),
    )


def _why_left(node: Apply) -> Reason | None:
    """Return why an OpFromGraph stays as it is, ``None`` if it need not."""
    op: Any = core_op(node.op)
    if type(op) is not OpFromGraph:
        return because(Why.SUBCLASS, what=type(op).__name__)
    if op.pullback_overrides is not None or op.pushforward_overrides is not None:
        return Fact(Why.GRADIENT_GIVEN)
    if declared_pattern(op) is not None:
        return Fact(Why.CONNECTIONS_GIVEN)
    if op.destroy_map or any(inner.op.destroy_map for inner in op.fgraph.toposort()):
        return because(Why.IN_PLACE, what="it")
    return None


def _that_must_stay(node: Apply, unread: Sequence[int]) -> list[int]:
    """Return the places of the unread inputs that the outputs would have other types without."""
    staying = [place for place in range(len(node.inputs)) if place not in unread]
    kept: list[int] = []
    if isinstance(node.op, Blockwise):
        for axis in range(node.op.batch_ndim(node)):
            # What a batch dimension is known to be: one, another length, or nothing.
            lengths = [variable.type.shape[axis] for variable in node.inputs]
            for is_told in (lambda length: length not in (None, 1), lambda length: length != 1):
                telling = [place for place, length in enumerate(lengths) if is_told(length)]
                if telling and not set(telling) & {*staying, *kept}:
                    kept.append(telling[0])
    return kept if staying or kept else list(unread[:1])


def _without(node: Apply, ends: UnusedEnds) -> dict[Variable, Variable]:
    """Return what replaces the outputs that are read: those of a new OpFromGraph."""
    old: Any = core_op(node.op)
    inputs = [v.type() for v in old.fgraph.inputs]
    outputs = _but(old.fgraph.bind(inputs), ends.outputs)
    new: Op = OpFromGraph(_but(inputs, ends.inputs), outputs, name=old.name)
    check_kept(outputs, new.fgraph, str(old))  # type: ignore[attr-defined]
    if isinstance(node.op, Blockwise):
        signature = "->".join(
            ",".join(f"({','.join(dimensions)})" for dimensions in _but(signatures, places))
            for signatures, places in (
                (node.op.inputs_sig, ends.inputs),
                (node.op.outputs_sig, ends.outputs),
            )
        )
        new = Blockwise(new, signature=signature, name=node.op.name)
    made = new.make_node(*_but(node.inputs, ends.inputs))
    replacements = dict(zip(_but(node.outputs, ends.outputs), made.outputs, strict=True))
    for variable, replacement in replacements.items():
        replacement.name = variable.name
    return replacements


def _read_anywhere(nodes: Sequence[Apply], context: PassContext) -> set[Variable]:
    """Return the outputs of ``nodes`` that have a reader, or are equal to one that has."""
    outputs = [variable for node in nodes for variable in node.outputs]
    read = {variable for variable in outputs if context.clients(variable)}
    if len(read) < len(outputs):
        keys = {context.same(variable) for variable in read}
        read.update(variable for variable in outputs if context.same(variable) in keys)
    return read


def _but[T](items: Sequence[T], places: Iterable[int]) -> list[T]:
    """Return the items that are not at ``places``."""
    left_out = set(places)
    return [item for place, item in enumerate(items) if place not in left_out]


def _in_words(inputs: Iterable[int], outputs: Iterable[int]) -> tuple[str, ...]:
    return (*(f"input {place}" for place in inputs), *(f"output {place}" for place in outputs))
