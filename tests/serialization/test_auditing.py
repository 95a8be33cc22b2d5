"""`audit` lists what a file refers to, judges it, and runs none of it."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import cloudpickle
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.errors import LoadError
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.saving import save
from support.hostile.running import Calls, called, named, text, whole
from support.real_graphs import GRAPHS


@pytest.mark.tiered(every=8)
@pytest.mark.parametrize("name", GRAPHS)
def test_real_graphs_are_clean(name: str, file: Path) -> None:
    inputs, outputs = GRAPHS[name]()
    file.write_bytes(cloudpickle.dumps((list(inputs), list(outputs))))
    report = audit(file)
    assert report.safe, report.refusal
    assert all(found.allowed and found.reason is None for found in report.globals)
    save((list(inputs), list(outputs)), file)
    assert audit(file).safe


def test_lists_each_global_once_with_its_verdict(file: Path) -> None:
    x = pt.vector("x")
    file.write_bytes(pickle.dumps([x + 1, x + 2, Calls(os.getcwd)], 0))
    report = audit(file)
    names = [(found.module, found.qualname) for found in report.globals]
    assert names == sorted(set(names))
    found = {f"{g.module}.{g.qualname}": g for g in report.globals}
    assert found["pytensor.tensor.elemwise.Elemwise"].allowed
    bad = found["posix.getcwd"]
    assert not bad.allowed
    assert not bad.left_out
    assert bad.mentions == 1
    assert bad.reason == "'posix' is not a package of graphs"
    assert "--trust" in str(bad.hint)
    assert not report.safe
    assert "posix.getcwd" in str(report.refusal)


def test_code_in_caches_is_listed_as_left_out(file: Path) -> None:
    inputs, outputs = GRAPHS["graph_op"]()
    file.write_bytes(cloudpickle.dumps((list(inputs), list(outputs))))
    report = audit(file)
    left_out = {found.module for found in report.globals if found.left_out}
    assert "cloudpickle.cloudpickle" in left_out
    assert report.safe


def test_global_in_a_cache_and_elsewhere_is_not_left_out(file: Path) -> None:
    y = OpFromGraph([x := pt.vector("x")], [x + 1])(pt.vector("v"))
    y.owner.op._lop_op_cache[True,] = os.getcwd
    y.owner.op.kwargs = {"mode": os.getcwd}
    file.write_bytes(cloudpickle.dumps([y]))
    found = next(g for g in audit(file).globals if g.qualname == "getcwd")
    assert not found.left_out
    assert not found.allowed


def test_hostile_state_is_found_though_all_globals_are_allowed(file: Path) -> None:
    op = Elemwise(pt.exp.scalar_op)
    op.nfunc_spec = ("os.system", 1, 1)
    file.write_bytes(cloudpickle.dumps([op(pt.vector("x"))]))
    report = audit(file)
    assert all(found.allowed for found in report.globals)
    assert "nfunc_spec" in str(report.refusal)


def test_no_foreign_module_is_imported(file: Path) -> None:
    for module in ("antigravity", "idlelib.idle", "pytensor.bin.pytensor_cache"):
        assert module not in sys.modules
        file.write_bytes(whole(called(module, "main", text("x"))))
        assert not audit(file).safe
        assert module not in sys.modules


def test_unusual_features_are_refusals_too(file: Path) -> None:
    file.write_bytes(whole(text("id") + b"Q"))
    report = audit(file)
    assert report.globals == ()
    assert "a persistent id" in str(report.refusal)


def test_more_names_than_a_graph_has_are_a_refusal(file: Path) -> None:
    names = b"".join(named(f"module{i}", "name") + b"0" for i in range(2_001))
    file.write_bytes(whole(names + b"N"))
    report = audit(file)
    assert report.globals == ()
    assert "refers to more than 2,000 things" in str(report.refusal)


def test_what_is_no_pickle_is_an_error(file: Path) -> None:
    for content, told in (
        (b"hello", "is text, not a whole pickle"),
        (b"\x80\x04h", "not a readable"),
    ):
        file.write_bytes(content)
        with pytest.raises(LoadError, match=told):
            audit(file)


def test_packages_can_be_admitted(file: Path) -> None:
    file.write_bytes(whole(called("json.decoder", "JSONDecoder")))
    assert "not a package" in str(audit(file).refusal)
    assert "not a class of ops" in str(audit(file, allow_packages=["json"]).refusal)
