"""Texts for variables and nodes in a diff: short, and readable without the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import HasShape
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Composite
from pytensor.tensor.basic import ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type_other import NoneTypeT

from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.diff.changes import Note, Subject, SubjectKind
from scanopt_cli.diff.matching.indexed_graph import IndexedGraph
from scanopt_cli.facts import Fact
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs, op_name
from scanopt_cli.ir.scan_view import is_loop

# A text never grows past this: names and constants come from files.
_LONGEST = 60
_ARGUMENTS = 4
# How deep an expression is written out: an Op counts two, an index or a shape one.
_DEPTH = 5
_DEEPEST = 12
_INDEX_DEPTH = 3
_ENTRIES = 6
# How many conversions in a row are skipped.
_LOOK = 4
# Part of the text of an atom whose variable has no name.
_NAMELESS = "?"


def node_subject(graph: IndexedGraph, node: Apply) -> Subject:
    """Return the Op of ``node`` and its operands: ``Subtensor[::-1]`` of ``xs``."""
    return Subject(op=op_text(graph, node), operands=_arguments(graph, node, _DEPTH - 2))


def variable_text(graph: IndexedGraph, variable: Variable, depth: int = _DEPTH) -> str:
    """Return the name of ``variable``, else the expression that makes it, ``depth`` Ops deep."""
    if isinstance(variable, Constant):
        value = constant_text(variable)
        return f"{variable.name}={value}" if variable.name else value
    if variable.name:
        return shortened(str(variable.name))
    node = variable.owner
    if node is None:
        return f"input {graph.input_rank.get(variable, '?')}"
    if is_conversion(node):
        return variable_text(graph, _source(node), depth)
    if is_loop(node):
        names = graph.slot_names(node)
        view, title = graph.view(node), graph.titles[node]
        place = graph.slot_place(variable)
        if place is None:
            return shortened(f"{title}.{view.op.output_name(variable.index)}")
        slot = view.slots[place]
        return shortened(f"{title}.{names[slot]}{' (last)' if variable is slot.last else ''}")
    if depth <= 0:
        return "…"
    if isinstance(node.op, Subtensor):
        return f"{variable_text(graph, node.inputs[0], depth - 1)}{index_text(graph, node)}"
    if isinstance(node.op, Shape):
        return f"{variable_text(graph, node.inputs[0], depth - 1)}.shape"
    label = op_text(graph, node)
    position = f".{variable.index}" if len(node.outputs) > 1 else ""
    inside = _arguments(graph, node, depth - 2) if depth > 2 else "…"
    return f"{label}({inside}){position}"


def two_texts(
    graph: IndexedGraph, variable: Variable, other_graph: IndexedGraph, other: Variable
) -> tuple[str, str]:
    """Return texts for two variables, as deep as needed to distinguish them."""
    text = retext = ""
    for depth in range(_DEPTH - 2, _DEEPEST):
        text = variable_text(graph, variable, depth)
        retext = variable_text(other_graph, other, depth)
        if text != retext:
            break
    return text, retext


def op_text(graph: IndexedGraph, node: Apply) -> str:
    """Return a text for the Op of a node, with the index where it has one."""
    op = node.op
    if node in graph.titles:
        return holder_text(type(core_op(op)).__name__, graph.titles[node])
    if isinstance(op, Subtensor):
        return f"Subtensor{index_text(graph, node)}"
    if isinstance(op, IncSubtensor):
        verb = "Set" if op.set_instead_of_inc else "Inc"
        return f"{verb}Subtensor{index_text(graph, node)}"
    return op_label(op)


def holder_text(kind: str, name: str) -> str:
    """Return the text for an Op that holds a graph, by its kind and its name: ``Scan `rnn```."""
    return kind if name == kind else f"{kind} `{shortened(name)}`"


def op_label(op: Op) -> str:
    """Return a short text for ``op`` itself."""
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Composite):
        return "Composite"
    if inner_graphs(op):
        return f"{type(core_op(op)).__name__} `{shortened(op_name(op))}`"
    if type(op) is CheckAndRaise:
        return f"CheckAndRaise{{{op.exc_type.__name__}}}"
    return shortened(str(op))


def index_text(graph: IndexedGraph, node: Apply) -> str:
    """Return the index of a Subtensor or IncSubtensor node as Python writes it: ``[0, :n]``."""
    parts = [_index_part(graph, part) for part in indices_of(node)]
    return shortened(f"[{', '.join(parts)}]")


def constant_text(constant: Constant) -> str:
    """Return the value of ``constant``, or its dtype and shape if it is long."""
    if isinstance(constant.type, NoneTypeT):
        return "None"
    data = constant.data
    if not isinstance(data, np.ndarray | np.generic):
        return shortened(str(data))
    array = np.asarray(data)
    if array.size == 1 and array.ndim == 0:
        return shortened(str(array[()]))
    if array.size <= _ENTRIES:
        plain = np.array2string(array, separator=", ", formatter={"all": str})
        return shortened(plain.replace("\n", ""))
    return f"{array.dtype}{list(array.shape)}"


def type_text(variable: Variable) -> str:
    """Return dtype and static shape: ``float64[3, ?]``."""
    dtype = getattr(variable.type, "dtype", None)
    if dtype is None or not isinstance(variable.type, HasShape):
        return str(variable.type)
    lengths = ", ".join("?" if length is None else str(length) for length in variable.type.shape)
    return f"{dtype}[{lengths}]" if lengths else str(dtype)


def length_text(graph: IndexedGraph, length: AffineExpr) -> str:
    """Return a length as text, with expressions in place of variables without a name."""

    def named(atom: Atom) -> Atom:
        if _NAMELESS not in str(atom):
            return atom
        variable: Variable = atom.variable.type()
        variable.name = variable_text(graph, atom.variable, _INDEX_DEPTH)
        return Atom(variable, atom.axis)

    terms = frozenset((named(atom), factor) for atom, factor in length.terms)
    return shortened(str(AffineExpr(length.constant, terms)))


def constants_text(before: Constant, after: Constant) -> tuple[str, str, Fact | None]:
    """Return texts for two different constants, and where they differ if the texts are equal."""
    text, retext = constant_text(before), constant_text(after)
    if text != retext:
        return text, retext, None
    if before.type != after.type:
        return f"{text} ({type_text(before)})", f"{retext} ({type_text(after)})", None
    return text, retext, _entries(before.data, after.data)


def reader_subject(graph: IndexedGraph, node: Apply, place: int) -> Subject:
    """Return what reads an input: the input of a node, or the slot of a loop."""
    node, place = through_conversions(graph, node, place)
    if is_loop(node):
        return slot_subject(graph, node, place)
    return node_subject(graph, node).of(SubjectKind.NODE_INPUT, place=place)


def slot_subject(graph: IndexedGraph, node: Apply, place: int) -> Subject:
    """Return the slot that an input of a Scan feeds, ``seq `x```, or ``step count``."""
    slot = "step count"
    if place:
        fed = graph.view(node).slots[place - 1]
        slot = f"{fed.kind} `{shortened(graph.slot_names(node)[fed])}`"
    return Subject(kind=SubjectKind.SLOT, op=op_text(graph, node), slot=slot)


def through_conversions(graph: IndexedGraph, node: Apply, place: int) -> tuple[Apply, int]:
    """Return the reader of an input, past conversions that have only one reader each."""
    for _ in range(_LOOK):
        readers = graph.readers.get(node.outputs[0], [])
        if (
            not is_conversion(node)
            or len(readers) != 1
            or graph.output_positions.get(node.outputs[0])
        ):
            break
        node, place = readers[0]
    return node, place


def shortened(text: str) -> str:
    """Return ``text``, cut in the middle if it is long."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[: half - 1]}…{text[-half:]}"


def _arguments(graph: IndexedGraph, node: Apply, depth: int) -> str:
    if isinstance(node.op, Subtensor):
        inputs = node.inputs[:1]
    elif isinstance(node.op, IncSubtensor):
        inputs = node.inputs[:2]
    elif inner_graphs(node.op):
        return ""
    else:
        inputs = node.inputs
    texts = [variable_text(graph, variable, depth) for variable in inputs[:_ARGUMENTS]]
    return ", ".join([*texts, "…"] if len(inputs) > _ARGUMENTS else texts)


def _index_part(graph: IndexedGraph, part: Any) -> str:
    if isinstance(part, slice):
        bounds = [
            "" if bound is None else variable_text(graph, bound, _INDEX_DEPTH)
            for bound in (part.start, part.stop)
        ]
        step = [] if part.step is None else [variable_text(graph, part.step, _INDEX_DEPTH)]
        return ":".join([*bounds, *step])
    return variable_text(graph, part, _INDEX_DEPTH)


def is_conversion(node: Apply) -> bool:
    """Whether ``node`` only adds dimensions, or converts between scalar and tensor."""
    if isinstance(node.op, DimShuffle):
        return bool(node.op.is_expand_dims)
    return isinstance(node.op, ScalarFromTensor | TensorFromScalar)


def _source(node: Apply) -> Variable:
    variable: Variable = node.inputs[0]
    for _ in range(_LOOK):
        inner = variable.owner
        if inner is None or variable.name or not is_conversion(inner):
            break
        variable = inner.inputs[0]
    return variable


def _entries(before: Any, after: Any) -> Fact | None:
    """Return where two arrays of one shape differ in bits, so NaN equals NaN, and -0 not 0."""
    if not isinstance(before, np.ndarray) or before.dtype.hasobject:
        return None
    entries, others = (
        np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(-1, before.dtype.itemsize)
        for data in (before, after)
    )
    differing = np.flatnonzero((entries != others).any(axis=1))
    if not differing.size:
        return None
    where = np.unravel_index(differing[0], before.shape)
    index = ", ".join(str(int(number)) for number in where)
    return Fact(
        Note.ENTRIES,
        {
            "count": len(differing),
            "size": before.size,
            "index": index,
            "before": str(before[where]),
            "after": str(after[where]),
        },
    )
