"""The graph of a compiled Function, with the in-placing of its compilation undone.

PyTensor rewrites the graph of a Function in place, so the Function and its pickle hold only the
optimised graph, not the graph as it was written. Here a node that overwrites its inputs is replaced
by one that does not, copies and views made for the memory interface are removed, and OpFromGraphs
that work in place or were finalized for a backend are inlined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph
from pytensor.compile.executor import Function
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.errors import LoadError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.payload import shared_from

NOTE = (
    "read from a compiled Function: PyTensor does not keep the graph as it was written, so this is "
    "its optimised graph, with in-placing undone"
)


@dataclass(frozen=True, slots=True)
class CompiledGraph:
    """The parts of a compiled Function that make its graph.

    Attributes
    ----------
    fgraph
        Its optimised graph; the outputs end with the updates.
    values
        Contents of shared inputs, by input position.
    updated
        For each output of ``fgraph`` behind the Function's own, the input that it updates.
    """

    fgraph: FunctionGraph
    values: Mapping[int, Any]
    updated: tuple[int, ...]


def inspect_function(function: Function) -> CompiledGraph:
    """Return the parts of ``function`` that make its graph."""
    specs = function.maker.inputs
    return CompiledGraph(
        fgraph=function.maker.fgraph,
        values={
            position: container.value
            for position, container in enumerate(function.input_storage)
            if specs[position].implicit
        },
        updated=tuple(i for i, spec in enumerate(specs) if spec.update is not None),
    )


def graph_of(compiled: CompiledGraph, where: str) -> Graph:
    """Return the graph of a compiled Function without in-placing; updates become outputs.

    Raises
    ------
    LoadError
        If a node writes into its inputs in a way that has no pure twin.
    """
    fgraph = compiled.fgraph
    memo: dict[Variable, Variable] = {
        v: shared_from(v.type, compiled.values[position], v.name)
        if position in compiled.values
        else v.type.make_variable(v.name)
        for position, v in enumerate(fgraph.inputs)
    }
    inputs = list(memo.values())
    _Purifier().copy(fgraph.toposort(), memo)
    outputs = [memo.get(output, output) for output in fgraph.outputs]
    first = len(outputs) - len(compiled.updated)
    updates = (f"{inputs[i].name or f'input {i}'} (updated)" for i in compiled.updated)
    return Graph(
        fgraph=FunctionGraph(inputs, outputs, clone=False),
        source=where,
        output_names=(*[None] * first, *updates) if compiled.updated else (),
        notes=(NOTE,),
    )


def _no_pure_twin(op: Op) -> LoadError:
    return LoadError(
        f"op {op} works in place and its pure form is not known",
        hint="save the graph before it is compiled, or use scanopt capture",
    )


class _Purifier:
    """Undoes in-placing, once for each Op and each inner graph, which may be applied often."""

    def __init__(self) -> None:
        # By id, since in-placing does not count when Ops are compared; entries keep keys alive.
        self._ops: dict[int, tuple[Op, Op]] = {}
        self._graphs: dict[int, tuple[FrozenFunctionGraph, FrozenFunctionGraph]] = {}

    def copy(self, nodes: Iterable[Apply], memo: dict[Variable, Variable]) -> None:
        """Copy ``nodes`` in order, without in-placing, and enter their outputs in ``memo``."""
        for node in nodes:
            inputs = [memo.get(variable, variable) for variable in node.inputs]
            if isinstance(node.op, DeepCopyOp | ViewOp):
                outputs = inputs
            elif self._is_to_inline(node.op):
                inner = node.op.fgraph
                inner_memo: dict[Variable, Variable] = dict(zip(inner.inputs, inputs, strict=True))
                self.copy(inner.toposort(), inner_memo)
                outputs = [inner_memo.get(output, output) for output in inner.outputs]
            else:
                outputs = [output.type.make_variable(output.name) for output in node.outputs]
                Apply(self._pure(node.op), inputs, outputs)
            memo.update(zip(node.outputs, outputs, strict=True))

    def _is_to_inline(self, op: Op) -> TypeGuard[OpFromGraph]:
        """Whether an Op with an inner graph was finalized, or works in place.

        The inner graph, without in-placing, then takes its place.
        """
        if not isinstance(op, OpFromGraph):
            return False
        if isinstance(op, FinalizedOpFromGraph) or op.is_inline or op.destroy_map:
            return True
        return self._pure_graph(op.fgraph) is not op.fgraph

    def _pure(self, op: Op) -> Op:
        """Return the op that computes what ``op`` does without writing into its inputs."""
        if id(op) not in self._ops:
            self._ops[id(op)] = op, self._made_pure(op)
        return self._ops[id(op)][1]

    def _made_pure(self, op: Op) -> Op:
        if isinstance(op, Scan):
            body = self._pure_graph(op.fgraph)
            return op if body is op.fgraph and not op.destroy_map else _with_body(op, body)
        if isinstance(op, OpFromGraph):
            if self._is_to_inline(op):
                raise _no_pure_twin(op)
            return op
        if not op.destroy_map:
            return op
        if isinstance(op, Elemwise):
            return Elemwise(op.scalar_op, name=op.name, nfunc_spec=op.nfunc_spec)
        if isinstance(op, Blockwise):
            return Blockwise(self._pure(op.core_op), op.signature, op.name, op.gufunc_spec)
        properties = op._props_dict() if hasattr(op, "_props_dict") else {}
        flags = [name for name in properties if name == "inplace" or name.startswith("overwrite_")]
        pure = type(op)(**{**properties, **dict.fromkeys(flags, False)}) if flags else op
        if pure.destroy_map:
            raise _no_pure_twin(op)
        return pure

    def _pure_graph(self, body: FrozenFunctionGraph) -> FrozenFunctionGraph:
        """Return ``body`` without in-placing; itself if no node in it works in place."""
        if id(body) not in self._graphs:
            self._graphs[id(body)] = body, self._made_pure_graph(body)
        return self._graphs[id(body)][1]

    def _made_pure_graph(self, body: FrozenFunctionGraph) -> FrozenFunctionGraph:
        ops = [node.op for node in body.toposort()]
        if all(not self._is_to_inline(op) and self._pure(op) is op for op in ops):
            return body
        memo: dict[Variable, Variable] = {v: v.type.make_variable() for v in body.inputs}
        inputs = list(memo.values())
        self.copy(body.toposort(), memo)
        outputs = [memo.get(output, output) for output in body.outputs]
        return FunctionGraph(inputs, outputs, clone=False).freeze()


def _with_body(op: Scan, body: FrozenFunctionGraph) -> Scan:
    fields = ("truncate_gradient", "name", "profile", "allow_gc", "strict")
    options = {name: getattr(op, name) for name in fields}
    unfrozen = body.unfreeze()
    scan = Scan(unfrozen.inputs, unfrozen.outputs, op.info, op.mode, **options)
    for name in ("vector_seqs", "vector_outs"):  # make_node sets them, which does not run here
        if hasattr(op, name):
            setattr(scan, name, getattr(op, name))
    return scan
