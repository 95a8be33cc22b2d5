"""Every form that a file may hold a graph in, and what comes with it."""

from __future__ import annotations

import gzip
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.rewriting.elemwise import local_careduce_fusion
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.ir.scan_view import is_loop
from scanopt_cli.serialization.files import values_path
from scanopt_cli.serialization.loading import VersionWarning, load
from scanopt_cli.serialization.saving import save
from scanopt_cli.serialization.unpickler.allowlist import Allowlist
from scanopt_cli.serialization.unpickler.graph_builder import GraphBuilder
from scanopt_cli.serialization.unpickler.pickle_handlers import HANDLED
from scanopt_cli.serialization.unpickler.records import read_records
from scanopt_cli.serialization.values import write_values
from support.benchmarks.growing_graphs import long_body
from support.hostile.sizes import nested
from support.real_graphs import GRAPHS


def loaded(file: Path, held: Any, **options: Any) -> Any:
    file.write_bytes(cloudpickle.dumps(held))
    return load(file, **options)


def same(graph: Any, inputs: Any, outputs: Any) -> bool:
    """Whether ``graph`` computes ``outputs``, its inputs matched by name."""
    names = {variable.name: variable for variable in inputs}
    every = graph.fgraph.inputs
    wanted = [names.get(variable.name, variable) for variable in every]
    return equal_computations(list(graph.outputs), list(outputs), list(every), wanted)


def tree(outputs: Any) -> str:
    """Return all that PyTensor prints about a graph, inner graphs and types included."""
    return str(pytensor.dprint(list(outputs), file="str", print_type=True))


# real graphs


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs_load_as_they_were(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
    graph = loaded(file, (list(inputs), list(outputs)))
    for found, wanted in ((graph.inputs, inputs), (graph.shared, shared)):
        assert [v.type for v in found] == [v.type for v in wanted]
        assert [v.name for v in found] == [v.name for v in wanted]
        assert [type(v) for v in found] == [type(v) for v in wanted]
    if not shared:
        assert tree(graph.outputs) == tree(outputs)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["scan_second_derivative", "random_stream", "arithmetic"])
def test_every_protocol(name: str, protocol: int, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    file.write_bytes(pickle.dumps((list(inputs), list(outputs)), protocol))
    assert len(load(file).outputs) == len(outputs)


@pytest.mark.parametrize("name", ["scan_second_derivative", "shared_variables"])
def test_safe_and_trusted_loading_agree(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    safe = loaded(file, (list(inputs), list(outputs)))
    trusted = load(file, trust=True)
    assert same(safe, trusted.fgraph.inputs, trusted.outputs)
    assert safe.values.keys() == trusted.values.keys()


# forms


def forms() -> dict[str, Callable[[Any, Any, Any], Any]]:
    return {
        "FunctionGraph": lambda x, y, z: FunctionGraph([x, y], [z, z + 1], clone=False),
        "FrozenFunctionGraph": lambda x, y, z: FunctionGraph([x, y], [z, z + 1]).freeze(),
        "Variable": lambda x, y, z: z,
        "list of outputs": lambda x, y, z: [z, z + 1],
        "tuple of outputs": lambda x, y, z: (z, z + 1),
        "dict of outputs": lambda x, y, z: {"a": z, "b": z + 1},
        "pair of lists": lambda x, y, z: ([x, y], [z, z + 1]),
        "list of two lists": lambda x, y, z: [[x, y], [z, z + 1]],
        "list and Variable": lambda x, y, z: ([x, y], z),
        "dict of lists": lambda x, y, z: {"inputs": [x, y], "outputs": [z, z + 1]},
        "dict with a dict": lambda x, y, z: {"inputs": [x, y], "outputs": {"a": z, "b": z + 1}},
    }


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("form", forms())
def test_forms(form: str, trust: bool, file: Path) -> None:
    x, y = pt.vector("x"), pt.vector("y")
    z = x * pt.exp(y)
    graph = loaded(file, forms()[form](x, y, z), trust=trust)
    outputs = [z] if "Variable" in form else [z, z + 1]
    if form != "FrozenFunctionGraph":
        assert {v.name for v in graph.inputs} == {"x", "y"}
    else:
        graph.inputs[0].name, graph.inputs[1].name = "x", "y"
    assert same(graph, [x, y], outputs)
    assert graph.output_names == (("a", "b") if "dict" in form and form != "dict of lists" else ())
    assert graph.source == str(file)


def test_two_variables_are_two_outputs_not_a_pair(file: Path) -> None:
    x = pt.vector("x")
    graph = loaded(file, (x + 1, x + 2))
    assert len(graph.outputs) == 2
    assert [v.name for v in graph.inputs] == ["x"]


def test_shared_variables_stay_what_they_are(file: Path) -> None:
    x, s = pt.vector("x"), pytensor.shared(np.arange(3.0), "s")
    rng = pytensor.shared(np.random.default_rng(3), name="rng")
    graph = loaded(file, ([x, s], [x * s + pt.random.normal(0, 1, rng=rng)]))
    assert [v.name for v in graph.inputs] == ["x"]
    assert [v.name for v in graph.shared] == ["s", "rng"]
    np.testing.assert_array_equal(graph.values[1], np.arange(3.0))
    compiled = pytensor.function(graph.inputs, graph.outputs)
    drawn = np.random.default_rng(3).normal()
    np.testing.assert_allclose(compiled(np.ones(3))[0], np.arange(3.0) + drawn)


@pytest.mark.parametrize("kind", [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM])
@pytest.mark.parametrize("protocol", [2, 5])
def test_generators_go_on_where_they_were(kind: Any, protocol: int, file: Path) -> None:
    generator = np.random.Generator(kind(5))
    generator.normal(size=7)
    rng = pytensor.shared(generator, name="rng")
    file.write_bytes(pickle.dumps([pt.random.normal(0, 1, rng=rng)], protocol))
    assert load(file).values[0].normal() == generator.normal()


def test_compiled_function_with_a_graph_that_works_in_place(file: Path) -> None:
    """PyTensor puts writes in place into the graphs of OpFromGraphs as well."""
    x = pt.dmatrix("x")
    gradient = pt.grad(pt.linalg.cholesky(x).sum(), x)
    function = pytensor.function([x], gradient, mode="FAST_RUN")
    graph = loaded(file, function)
    assert not any(node.op.destroy_map for node in walk(graph.fgraph))
    again = pytensor.function(graph.inputs, graph.outputs[0], mode="FAST_COMPILE")
    value = np.array([[2.0, 0.5], [0.5, 3.0]])
    np.testing.assert_allclose(again(value), function(value))


def test_graphs_that_pickle_writes_twice(file: Path) -> None:
    """Of an object that holds itself, pickle drops one of two copies."""
    a, b = pt.dmatrix("a"), pt.dmatrix("b")
    for _ in range(2):
        solved = pt.linalg.solve_continuous_lyapunov(a, b)
        gradient = pt.grad(solved.sum(), a)
        # What was differentiated twice holds graphs that hold it.
        pt.grad(gradient.sum(), a)
        graph = loaded(file, ([a, b], [gradient]))
        assert digest(graph.fgraph) == digest(as_graph(([a, b], [gradient])).fgraph)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("mode", "trust"), [("NUMBA", False), ("CVM", False), ("FAST_COMPILE", False), ("CVM", True)]
)
def test_compiled_function(mode: str, trust: bool, file: Path) -> None:
    x, s = pt.matrix("x"), pytensor.shared(np.ones((3, 3)), "s")
    h = pytensor.scan(
        lambda h, w: pt.tanh(h @ w),
        outputs_info=[x],
        non_sequences=[s],
        n_steps=3,
        return_updates=False,
    )
    outputs = [h[-1], pt.exp(x).sum(), pt.set_subtensor(x[0], 0.0)]
    function = pytensor.function([x], outputs, updates={s: 0.5 * s}, mode=mode)
    graph = loaded(file, function, trust=trust)
    assert [v.name for v in graph.fgraph.inputs] == ["x", "s"]
    assert graph.output_names == (None, None, None, "s (updated)")
    assert "optimised graph" in graph.notes[0]
    assert not any(node.op.destroy_map for node in graph.fgraph.toposort())
    value = np.linspace(0, 1, 9).reshape(3, 3)
    again = pytensor.function(graph.inputs, graph.outputs, mode="FAST_COMPILE")
    got = again(value)
    for left, right in zip(got, [*function(value), 0.5 * np.ones((3, 3))], strict=True):
        np.testing.assert_allclose(left, right)


def test_nested_graphs_of_a_compiled_function(file: Path) -> None:
    """Each is looked at once, wherever it is applied."""
    assert len(loaded(file, nested(12)).fgraph.apply_nodes) == 1


def test_op_that_was_finalized_for_a_backend_is_its_graph(file: Path) -> None:
    """Numba would evaluate it by attributes that say otherwise, without checking bounds."""
    x, i = pt.dvector("x"), pt.lvector("i")
    op = FusedElemwise(
        [x, i],
        [pt.exp(x)],
        indexed_inputs=(((0,), 0),),
        indexed_outputs=(None,),
        reduced_outputs=(None,),
    )
    graph = loaded(file, ([x], [op(x, pt.constant([2**40]))]))
    (node,) = graph.fgraph.apply_nodes
    assert type(node.op) is OpFromGraph
    assert node.op.is_inline
    again = pytensor.function(graph.inputs, graph.outputs[0], mode="FAST_COMPILE")
    np.testing.assert_allclose(again([0.0, 1.0]), np.exp([0.0, 1.0]))


def test_reduction_that_was_fused_for_c(file: Path) -> None:
    """The rewrite sets the identity of the Composite by which it combines numbers."""
    x = pt.vector("x")
    total = pt.exp(x).sum()
    fused = local_careduce_fusion.transform(FunctionGraph([x], [total], clone=False), total.owner)
    assert fused[0].owner.op.scalar_op.identity == 0
    graph = loaded(file, fused)
    (node,) = graph.fgraph.apply_nodes
    assert isinstance(node.op.scalar_op, ps.Composite)
    assert node.op.scalar_op.identity == 0


@pytest.mark.parametrize("protocol", [3, 5])
def test_large_array_loads(protocol: int, file: Path) -> None:
    """Its bytes are copied once, however they are written."""
    values = np.arange(float(6 << 20))
    file.write_bytes(pickle.dumps([pt.vector("x") + pt.constant(values)], protocol))
    (node,) = load(file).fgraph.apply_nodes
    np.testing.assert_array_equal(node.inputs[1].data, values)


def test_differentiated_graph_op_loads_without_its_closures(file: Path) -> None:
    inputs, outputs = GRAPHS["graph_op"]()
    data = cloudpickle.dumps((list(inputs), list(outputs)))
    assert b"_function_setstate" in data
    file.write_bytes(data)
    graph = load(file)
    assert all(not getattr(n.op, "_lop_op_cache", None) for n in graph.fgraph.toposort())
    assert same(graph, inputs, outputs)


def test_sizes_are_kept_of_objects_that_live() -> None:
    """They are kept by ``id``, which another object gets once the first is gone."""
    data = pickle.dumps([frozenset({i, i + 1}) for i in range(5)], protocol=2)
    builder = GraphBuilder("a file", Allowlist(HANDLED), len(data))
    builder.value(read_records(data, "a file").root)
    assert builder.nests._known.keys() <= set(map(id, builder.made.values()))


def test_gzip_is_known_by_its_bytes(file: Path) -> None:
    file.write_bytes(gzip.compress(pickle.dumps([pt.vector("x") + 1])))
    assert len(load(file).outputs) == 1


def test_where_variables_were_made_is_kept(file: Path) -> None:
    with pytensor.config.change_flags(traceback__limit=8):
        y = pt.vector("x") + 1
    graph = loaded(file, [y])
    assert y.tag.trace
    assert graph.outputs[0].tag.trace == y.tag.trace


def test_another_pytensor_version_is_warned_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pytensor, "__version__", "3.0.0")
        save(([], [pt.zeros(3)]), file)
    with pytest.warns(VersionWarning, match=rf"3\.0\.0.*{pytensor.__version__}"):
        load(file)


# recorded values


def test_recorded_values_beside_the_graph(file: Path) -> None:
    x, rng = pt.vector("x"), pytensor.shared(np.random.default_rng(3), name="rng")
    draw = pt.random.normal(x, 1, rng=rng)
    calls = [(np.arange(2.0), np.random.default_rng(8)), (np.ones(2), np.random.default_rng(9))]
    assert write_values(file, calls) == values_path(file) == file.with_name("graph.values.npz")
    graph = loaded(file, ([x], [draw]))
    np.testing.assert_array_equal(graph.recorded[1][0], np.ones(2))
    assert graph.recorded[0][1].normal() == np.random.default_rng(8).normal()


def test_broken_recorded_values_are_a_note(file: Path) -> None:
    values_path(file).write_bytes(b"PK\x03\x04 nothing")
    graph = loaded(file, [pt.vector("x") + 1])
    assert graph.recorded == ()
    assert "recorded values cannot be used" in graph.notes[0]


def test_recorded_values_of_another_graph_are_a_note(file: Path) -> None:
    write_values(file, [(1.0, 2.0, 3.0)])
    graph = loaded(file, [pt.vector("x") + pt.vector("y")])
    assert graph.recorded == ()
    assert "2 values a call" in graph.notes[0]


def test_values_of_other_kinds_are_not_recorded(file: Path) -> None:
    assert write_values(file, [(object(),)]) is None
    assert write_values(file, []) is None
    assert not values_path(file).exists()


# bad files


def test_loading_in_a_fresh_process_needs_no_import_first(file: Path) -> None:
    inputs, outputs = GRAPHS["linear_algebra"]()
    save((list(inputs), list(outputs)), file)
    code = (
        "import sys; from scanopt_cli.serialization.loading import load; "
        "print(len(load(sys.argv[1]).outputs))"
    )
    run = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)
    assert run.stdout.strip() == str(len(outputs)), run.stderr


def test_names_of_variables(file: Path) -> None:
    x = pt.vector("x")
    middle: Variable = x * 2
    middle.name = "middle"
    graph = loaded(file, [middle + 1])
    assert graph.outputs[0].owner.inputs[0].name == "middle"


def test_the_body_of_a_scan_is_not_copied(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor would copy it three times, which took most of the time of reading."""
    file = file.with_suffix(".scanopt")
    save(long_body(50), file)
    copied: list[Apply] = []
    clone = Apply.clone

    def counted(self: Apply, *arguments: Any, **options: Any) -> Any:
        copied.append(self)
        return clone(self, *arguments, **options)

    monkeypatch.setattr(Apply, "clone", counted)
    (loop,) = (node for node in load(file).fgraph.apply_nodes if is_loop(node))
    assert len(loop.op.fgraph.apply_nodes) >= 50
    assert len(copied) < 10
