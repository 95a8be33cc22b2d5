"""What `save` writes, `load` reads, and it is the same graph; or `save` refuses, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, applys_between
from pytensor.link import utils
from pytensor.raise_op import Assert
from pytensor.scalar.basic import Add, upcast_out
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import Elemwise

from build import SAMPLES
from scanopt_cli.cli.app import run
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, as_graph
from scanopt_cli.serialization import files
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from scanopt_cli.verification.verifying import verify
from support import tiers
from support.foreign_ops import Opaque
from support.generated.strategies import GeneratedScan, scan_graphs
from support.graph_building import scan
from support.real_graphs import GRAPHS
from support.round_trips import assert_comes_back

BACKSLASH = "has a backslash, '??' or a control character"
REAL_NAMES = (
    *("\\alpha", "\\sigma_{\\text{obs}}", "$\\beta_1$", "C:\\data\\n", "trailing\\"),
    *("why??", "??/", "a\tb", "two\nlines", "\x1b[31mred\x1b[0m", "\r", "\x7f", "{0.x}", "%s"),
    *('"; x', "'''", "#include <x>", "*/", "π", "名前", "😀", "", "::error::", "n" * 900),
)
NAMES = st.sampled_from(REAL_NAMES) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=900
)


def refused(graph: Any, file: Path) -> str:
    """What `save` says of a graph that it refuses, with nothing written."""
    with pytest.raises(ScanoptError) as caught:
        save(graph, file)
    assert list(file.parent.iterdir()) == []
    message = str(caught.value)
    assert message.startswith(f"{file}: is not written, since it would not load: ")
    assert message.isprintable()
    assert len(message) < 600
    return message


def loop(name: str, steps: str = "series") -> tuple[list[Variable], list[Variable]]:
    series, start = pt.dvector(steps), pt.dscalar("start")
    out = scan(lambda x, h: h * 0.5 + x, sequences=[series], outputs_info=[start], name=name)
    return [series, start], [out[-1]]


# every graph that is at hand


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("module", SAMPLES)
def test_samples(module: str, file: Path) -> None:
    for graph in import_module(module).build().values():
        assert_comes_back(graph, file)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    assert_comes_back((list(inputs), list(outputs)), file)


@settings(max_examples=tiers.examples(30, 150), deadline=None)
@given(generated=scan_graphs(generators=True), names=st.data())
def test_generated_graphs_of_any_names(
    generated: GeneratedScan, names: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    graph = as_graph((generated.inputs, generated.outputs)).copy()
    wrapped = OpFromGraph(graph.inputs, graph.outputs, name=names.draw(NAMES))
    inputs = [v.type(name=names.draw(NAMES)) for v in graph.inputs]
    outputs = wrapped(*inputs, return_list=True)
    for output in outputs:
        output.name = names.draw(NAMES)
    looped = loop(names.draw(NAMES), names.draw(NAMES))
    file = tmp_path_factory.mktemp("any") / "graph.pkl"
    assert_comes_back((inputs + looped[0], outputs + looped[1]), file)


# names and messages


def named(name: str) -> tuple[list[Variable], list[Variable]]:
    """A graph in which all that may have a name has ``name``."""
    inputs, (out,) = loop(name, name)
    inner = pt.dscalar("inner")
    out = OpFromGraph([inner], [pt.sin(inner) * 2], name=name)(out)
    out = ifelse(out > 5, out, out + pt.constant(1.0, name=name), name=name)
    out.name = name
    return inputs, [out]


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", REAL_NAMES, ids=range(len(REAL_NAMES)))
def test_names_are_any_text(name: str, file: Path) -> None:
    again = assert_comes_back(named(name), file)
    names = {v.name for v in ancestors(again.outputs) if isinstance(v, Constant)}
    assert name in names


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(Mode("vm", None), id="vm"),
        pytest.param(Mode("numba", None), id="numba", marks=pytest.mark.deep),
    ],
)
def test_such_names_are_compiled(mode: Mode, file: Path) -> None:
    graphs = [named(name) for name in REAL_NAMES]
    save(([v for i, _ in graphs for v in i], [v for _, o in graphs for v in o]), file)
    again = load(file)
    compiled = pytensor.function(again.inputs, again.outputs, mode=mode)
    wanted = 2 * np.sin((0.25 * 0.5 + 1) * 0.5 + 2) + 1
    values = compiled(*[np.arange(3.0), 0.5] * len(graphs))
    np.testing.assert_allclose(values, wanted)


BREAKS = (
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\u2028",
    "\\\n",
    "\n\f",
)


@pytest.mark.parametrize("line_break", BREAKS, ids=ascii)
def test_names_stay_comments_of_generated_code(
    line_break: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    compile_source = utils.compile_function_src

    def recording(source: str, *arguments: Any, **options: Any) -> Any:
        written.append(source)
        return compile_source(source, *arguments, **options)

    monkeypatch.setattr(utils, "compile_function_src", recording)
    save(named(f"a{line_break}hidden=1{line_break}{line_break}hidden=2"), file)
    graph = load(file)
    pytensor.function(graph.inputs, graph.outputs, mode=Mode("numba", None))
    assert any("hidden=" in source for source in written)
    for source in written:
        lines = source.replace("\r", "\n").split("\n")
        assert all("#" in line.partition("hidden=")[0] for line in lines if "hidden=" in line)


@pytest.mark.parametrize("command", ["inspect", "hash", "optimize", "diff", "verify"])
def test_commands_show_such_names_escaped(
    command: str, file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "\\alpha \x1b[31m\r::error::"
    save(loop(name, name), file)
    words = [command, str(file), *([str(file)] if command in ("diff", "verify") else [])]
    assert run(words if command != "hash" else [*words, "--inner"]) == 0
    for text in capfd.readouterr():
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "::error" not in text


def test_numpys_own_texts_are_names(file: Path) -> None:
    x = pt.dvector("x")
    x.name = np.str_("alpha")
    save(([x], [x * 2]), file)
    assert type(load(file).inputs[0].name) is str


@pytest.mark.parametrize("message", ["see C:\\data", "why??", "bell \x07"])
def test_messages_that_c_reads_otherwise_are_refused_at_once(message: str, file: Path) -> None:
    x = pt.dvector("x")
    graph = ([x], [Assert(message)(x, x.sum() > 0)])
    said = refused(graph, file)
    assert f"raise_op.Assert with a state of its own: attribute 'msg' {BACKSLASH}" in said
    assert "; change that, or trust it" in said
    save(graph, file, trust=True)
    assert load(file, trust=True).outputs[0].owner.op.msg == message


@pytest.mark.parametrize("message", ['50% "sure"', "a {b} $c$", "two\nlines", "ü"])
def test_other_messages_come_back(message: str, file: Path) -> None:
    x = pt.dvector("x")
    graph = assert_comes_back(([x], [Assert(message)(x, x.sum() > 0)]), file)
    assert graph.outputs[0].owner.op.msg == message


LONG = {
    "input": lambda: ([x := pt.dvector("n" * 1_001)], [x * 2]),
    "loop": lambda: loop("n" * 1_001),
    "graph": lambda: ([x := pt.dvector("x")], [OpFromGraph([x], [x * 2], name="n" * 1_001)(x)]),
    "message": lambda: ([x := pt.dvector("x")], [Assert("n" * 1_001)(x, x.sum() > 0)]),
}


@pytest.mark.parametrize("what", LONG)
def test_names_of_more_than_1000_letters_are_refused_at_once(what: str, file: Path) -> None:
    assert "has more than 1,000 letters" in refused(LONG[what](), file)


def test_graphs_of_such_names_are_evaluated() -> None:
    graph = loop("n" * 1_001, "n" * 1_001)
    assert verify(graph, graph, runs=1, modes="plain").ok


@pytest.mark.parametrize("name", ["a\ud800b", "a\0b"], ids=ascii)
def test_names_that_no_code_may_hold_are_refused_at_once(name: str, file: Path) -> None:
    said = refused(loop(name), file)
    assert "attribute 'name' has a null character, or half of a surrogate pair" in said


def test_a_message_is_refused_where_only_a_body_has_it(file: Path) -> None:
    x = pt.dvector("x")
    out = scan(lambda v: Assert("\\")(v, v > 0), sequences=[x], outputs_info=[None])
    assert BACKSLASH in refused(([x], [out]), file)


def test_names_of_numbers_stay_names_of_functions(file: Path) -> None:
    """Backends call functions after scalar Ops."""
    v = pt.dvector("v")
    out = Elemwise(Add(upcast_out, name="a b"))(v, v)
    assert "is not the name of a scalar op" in refused(([v], [out]), file)


def test_optimize_writes_nothing_that_does_not_load(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A derived name may be longer than that of the file."""
    target = file.with_name("slope.pkl")
    save(loop("n" * 1_000), file)
    assert run(["grad", str(file), "--no-check", "--stage", "raw", "-o", str(target)]) == 2
    assert "slope.pkl: is not written, since it would not load" in capfd.readouterr().err
    assert not target.exists()


# constants


@pytest.mark.deep
@pytest.mark.parametrize("value", [0.5, np.nan, -0.0, np.arange(3.0)], ids=str)
def test_one_constant_written_many_times(value: Any, file: Path) -> None:
    x = pt.dvector("x")
    y = x
    for _ in range(1_610):
        y = y * pt.constant(value)
    assert_comes_back(([x], [OpFromGraph([x], [y])(x)]), file)


# sizes


def test_what_is_too_large_is_refused_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = pt.dvector("x")
    graph = ([x], [x + pt.constant(np.zeros(20_000))])
    monkeypatch.setattr(files, "MAX_BYTES", 100_000)
    said = refused(graph, file)
    assert said.endswith(
        "holds more than 100,000 bytes; make inputs of large constants and shared variables"
    )


def test_gzipped_zeros_come_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would unpack to more than 100 times their size."""
    monkeypatch.setattr(files, "_SMALL", 100_000)
    x = pt.dvector("x")
    target = file.with_name("zeros.pkl.gz")
    assert_comes_back(([x], [x + pt.constant(np.zeros(100_000))]), target)
    assert target.stat().st_size > 800_000


def test_too_many_nodes_are_refused_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scanopt_cli.serialization.loading.MOST_NODES", 3)
    x = pt.dvector("x")
    said = refused(([x], [pt.sin(pt.cos(pt.sin(pt.cos(x))))]), file)
    assert "has more than 3 nodes" in said


def notes(count: int) -> Iterator[str]:
    return (f"note {number}" for number in range(count))


def test_too_many_notes_are_refused_at_once(file: Path) -> None:
    graph = as_graph(loop("a"))
    said = refused(Graph(fgraph=graph.fgraph, notes=tuple(notes(101))), file)
    assert "more notes than anybody reads" in said


def test_ops_of_other_packages_are_the_readers_decision(file: Path) -> None:
    x = pt.dvector("x")
    save(([x], [Opaque("state")(x)]), file)
    with pytest.raises(ScanoptError, match="--allow-package support"):
        load(file)
    assert load(file, trust=True).outputs[0].owner.op.state == "state"


def test_saving_leaves_the_graphs_of_the_process_alone(file: Path) -> None:
    """PyTensor has one input of inner graphs for each position and type, of any file."""
    inputs, (last,) = loop("a")
    op = next(node.op for node in applys_between([], [last]) if isinstance(node.op, Scan))
    kinds = [variable.type for variable in op.fgraph.inputs]
    save((inputs, [last]), file)
    assert all(v.type is kind for v, kind in zip(op.fgraph.inputs, kinds, strict=True))
