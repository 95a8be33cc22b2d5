"""The rewrites of loops that PyTensor runs when it compiles: they lower loops and prepare bodies.

1. `lower_loops`: a `TracedLoop` becomes a `Loop`, with buffers for the traces that are read. JAX
   keeps those whose traces are read.
2. `static_lengths` (JAX): lengths that JAX must know are computed while it traces.
3. `drop_unit_dimensions` (Numba): what loops read is computed without dimensions of one entry.
4. `scalarize_loops` (Numba): states, constants and the index that are tensors of no dimensions
   become numbers.
5. `scalar_loops` (linkers that compile C): a loop over numbers becomes a function in C.
6. `keep_branches_lazy` (virtual machine): where there are loops, no node works in place that would
   have a branch computed that is not taken.
7. `destroy_initial_states`: a loop overwrites the initial values that nobody else reads.
8. `loop_bodies`: the bodies are rewritten like the graph, and may overwrite the states.
9. `distribute_loops` (Numba): what the steps of a loop wait for is done apart from what they do
   besides. Not if the flag ``numba__fastmath`` is off: then PyTensor keeps the order of sums.

Importing this module registers these rewrites with PyTensor.
"""

from __future__ import annotations

from typing import Any

from pytensor.compile.aliasing import add_supervisor_to_fgraph
from pytensor.compile.io import In
from pytensor.compile.mode import Mode, optdb
from pytensor.compile.rewriting import rewrite_inner_graph
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.rewriting.basic import (
    dfs_rewriter,
    get_active_mode,
    graph_rewriter,
    node_rewriter,
)
from pytensor.graph.utils import InconsistencyError
from pytensor.link.basic import Linker
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.mlx.linker import MLXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.link.pytorch.linker import PytorchLinker
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import as_tensor_variable, scalar_from_tensor, tensor_from_scalar
from pytensor.typed_list.type import TypedListType

from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.lazy_branches import keep_branches_lazy
from scanopt_cli.loop.association import reassociate
from scanopt_cli.loop.lowering import lowered
from scanopt_cli.loop.memory import copy_shared_outputs, overwrite_own_states
from scanopt_cli.loop.operator_base import LoopOperator
from scanopt_cli.loop.operators import Loop, TracedLoop
from scanopt_cli.loop.products import (
    drop_unit_dimensions,
    unfuse_scalarized,
    use_products,
)
from scanopt_cli.loop.recurrences import FEWEST_STEPS, distributed
from scanopt_cli.loop.registered_functions import register_functions
from scanopt_cli.loop.row_access import use_rows
from scanopt_cli.loop.scalar_loops import has_no_dimensions, scalar_loop
from scanopt_cli.loop.shifted_sums import protect_log_sums
from scanopt_cli.loop.static_lengths import make_lengths_static, static_lengths
from scanopt_cli.loop.vector_math import use_vector_functions
from scanopt_cli.loop.whole_arrays import split_functions, unfuse

_WITHOUT_MEMORY = (JAXLinker, PytorchLinker, MLXLinker)
"""The linkers whose functions never overwrite an array."""


@node_rewriter([TracedLoop])  # type: ignore[untyped-decorator]
def lower_loop(fgraph: FunctionGraph, node: Apply) -> dict[Variable, Variable] | None:
    """Replace a traced loop by a `Loop` that keeps the traces that are read."""
    read = {i for i, output in enumerate(node.outputs) if fgraph.clients[output]}
    mode = get_active_mode(fgraph)
    traces = {i for i in read if node.op.n_states <= i < len(node.outputs) - 1}
    has_lists = any(isinstance(node.outputs[i].type, TypedListType) for i in traces)
    # What stays is dispatched, or refused with a reason.
    if (isinstance(mode.linker, JAXLinker) and traces) or (
        isinstance(mode.linker, NumbaLinker) and has_lists
    ):
        return None
    return {node.outputs[i]: v for i, v in lowered(node, read).items()}


@node_rewriter([Loop])  # type: ignore[untyped-decorator]
def scalarize_loop(_fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Make numbers of a loop's states and constants of no dimensions, and of its index."""
    body = node.op.body
    numbers = {v: ScalarType(v.type.dtype)() for v in body.inputs if has_no_dimensions(v)}
    if not numbers:
        return None
    values = {v: tensor_from_scalar(number) for v, number in numbers.items()}
    outputs = graph_replace(body.outputs, values, strict=False)
    next_states = [
        scalar_from_tensor(new) if old in numbers else new
        for old, new in zip(body.states, outputs, strict=False)
    ]
    inputs = [numbers.get(v, v) for v in body.inputs]
    graph = FunctionGraph(inputs, [*next_states, *outputs[len(next_states) :]], clone=False)
    n_steps, *outer = node.inputs
    made: Any = Loop(graph.freeze(), node.op.n_states, node.op.is_while, name=node.op.name)(
        n_steps,
        *(
            scalar_from_tensor(value) if v in numbers else value
            for v, value in zip(body.inputs[1:], outer, strict=True)
        ),
        return_list=True,
    )
    return [as_tensor_variable(v) if isinstance(v.type, ScalarType) else v for v in made]


@graph_rewriter  # type: ignore[untyped-decorator]
def branches_beside_loops(fgraph: FunctionGraph) -> None:
    """Keep the guards of what loops read from being computed, also if PyTensor alone compiles."""
    if any(isinstance(core_op(node.op), LoopOperator) for node in walk(fgraph)):
        keep_branches_lazy(fgraph, get_active_mode(fgraph))


@graph_rewriter  # type: ignore[untyped-decorator]
def destroy_initial_states(fgraph: FunctionGraph) -> None:
    """Let loops overwrite the initial values that nobody else reads."""
    for node in fgraph.toposort():
        if not isinstance(node.op, Loop):
            continue
        for state, initial in enumerate(node.op.split(node.inputs)[1]):
            if isinstance(initial, Constant) or isinstance(initial.type, ScalarType):
                continue
            op = node.op.destroying({*node.op.destroyed, state})
            new = op.make_node(*node.inputs)
            replacements = list(zip(node.outputs, new.outputs, strict=True))
            try:
                fgraph.replace_all_validate(replacements, reason="destroy_initial_states")
            except InconsistencyError:
                continue
            node = new


@graph_rewriter  # type: ignore[untyped-decorator]
def drop_unit_dimensions_beside_loops(fgraph: FunctionGraph) -> None:
    """Compute without dimensions of one entry what loops read."""
    if any(isinstance(node.op, Loop) for node in fgraph.apply_nodes):
        drop_unit_dimensions(fgraph)


@graph_rewriter  # type: ignore[untyped-decorator]
def loop_bodies(fgraph: FunctionGraph) -> None:
    """Rewrite the bodies of loops for the linker at hand."""
    rewrite_inner_graph(fgraph, lambda op: isinstance(op, LoopOperator), _rewrite_body)


def _rewrite_body(
    linker: Linker, op: LoopOperator, _node: Apply, body: FunctionGraph, *, mode: Mode
) -> None:
    register_functions(linker)
    if isinstance(linker, _WITHOUT_MEMORY):
        mode.optimizer.rewrite(body)
        if isinstance(linker, JAXLinker):
            make_lengths_static(body)
        return
    owned = body.inputs[1 : 1 + op.n_states]
    inputs = [In(v, borrow=True, mutable=v in owned) for v in body.inputs]
    add_supervisor_to_fgraph(fgraph=body, input_specs=inputs, accept_inplace=True)
    if isinstance(linker, NumbaLinker):
        # Before the rewrites that fuse elementwise arithmetic, and after those that find products.
        use_products(body)
    keep_branches_lazy(body, mode)
    protect_log_sums(body)
    mode.optimizer.rewrite(body)
    if isinstance(linker, NumbaLinker):
        use_products(body)
        unfuse_scalarized(body)
        unfuse(body)
        reassociate(body, op.n_states)
        use_vector_functions(body)
        split_functions(body)
        use_rows(body, op.n_states, is_while=op.is_while)
    overwrite_own_states(body, op.n_states)
    copy_shared_outputs(body, op.n_states)


@node_rewriter([Loop])  # type: ignore[untyped-decorator]
def distribute_loop(_fgraph: FunctionGraph, node: Apply) -> list[Variable] | None:
    """Let the steps of a loop be done in parts, if that gains and there may be many."""
    op, n_steps = node.op, number(node.inputs[0])
    is_short = n_steps is not None and n_steps < FEWEST_STEPS
    if op.in_parts or is_short or not config.numba__fastmath:
        return None
    if distributed(op.fgraph, op.n_states) is None:
        return None
    made: Any = op.done_in_parts()(*node.inputs, return_list=True)
    return list(made)


def _register(name: str, rewriter: Any, *tags: str, position: float) -> None:
    if name not in optdb.__db__:
        optdb.register(name, rewriter, *tags, position=position)


_register("lower_loops", dfs_rewriter(lower_loop), "minimum_compile", position=1.62)
# After the rewrites that simplify lengths, and before fusion, which hides them.
_register("static_lengths", static_lengths, "jax", position=48.8)
# After the rewrites that move dimensions into elementwise arithmetic, and before fusion.
_register("drop_unit_dimensions", drop_unit_dimensions_beside_loops, "numba", position=48.9)
_register(
    "scalarize_loops", dfs_rewriter(scalarize_loop, ignore_newtrees=True), "numba", position=49.4
)
_register(
    "scalar_loops",
    dfs_rewriter(scalar_loop, ignore_newtrees=True),
    *("fast_run", "cxx_only"),
    position=49.35,
)
# Behind PyTensor's DestroyHandler, and before all that makes nodes work in place.
_register("keep_branches_lazy", branches_beside_loops, "fast_run", "inplace", position=49.56)
_register("destroy_initial_states", destroy_initial_states, "fast_run", "inplace", position=50.6)
_register("loop_bodies", loop_bodies, "minimum_compile", "compile_inner_graph", position=100.5)
_register(
    "distribute_loops", dfs_rewriter(distribute_loop, ignore_newtrees=True), "numba", position=100.6
)
