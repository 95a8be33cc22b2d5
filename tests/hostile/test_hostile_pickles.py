"""The safe loader against files that want to run something."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

from scanopt_cli.errors import LoadError, UnsafeFileError
from scanopt_cli.serialization.auditing import audit
from scanopt_cli.serialization.loading import load
from support.hostile import arrays as hostile_arrays
from support.hostile import names as hostile_names
from support.hostile import state as hostile_state
from support.hostile.running import HOSTILE, Calls, instance, touch

assert hostile_names  # their import completes HOSTILE
assert hostile_state
assert hostile_arrays

FIRES = (
    *("system_by_reduce", "system_by_inst", "system_by_obj", "memmap_by_newobj", "eval_call"),
    *("exec_call", "import_and_getattr", "call_thrown_away", "dotted_name_in_configdefaults"),
    *(
        "memmap_by_newobj_ex",
        "subprocess_helper_of_pytensor",
        "attrgetter",
        "module_with_side_effects",
    ),
    *("cloudpickled_function", "scan_with_hostile_mode", "object_array", "feature_that_is_used"),
)
"""Payloads that act while plain pickle reads them; the others act when the graph is used."""


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that only a payload makes; a module that makes it when imported is on the path."""
    path = tmp_path / "marker"
    (tmp_path / "import_me_not.py").write_text(f"open({str(path)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield path
    sys.modules.pop("import_me_not", None)


@pytest.mark.parametrize("name", HOSTILE)
def test_is_refused_and_leaves_no_trace(name: str, marker: Path, tmp_path: Path) -> None:
    file = tmp_path / "hostile.pkl"
    file.write_bytes(HOSTILE[name](marker))
    before = dict(os.environ)
    with pytest.raises(LoadError) as caught:
        load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert message.isprintable()
    assert len(message) < 700
    assert not audit(file).safe
    assert not marker.exists()
    assert os.environ == before
    assert "import_me_not" not in sys.modules


@pytest.mark.parametrize("name", FIRES)
def test_payloads_are_not_duds(name: str, marker: Path, tmp_path: Path) -> None:
    file = tmp_path / "hostile.pkl"
    file.write_bytes(HOSTILE[name](marker))
    with contextlib.suppress(LoadError):
        load(file, trust=True)
    assert wait_for(marker)


def wait_for(path: Path) -> bool:
    """Whether ``path`` appears within two seconds: a payload may start a process."""
    for _ in range(200):
        if path.exists():
            return True
        time.sleep(0.01)
    return False


def test_message_names_global_file_and_flag(tmp_path: Path) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps(Calls(os.getcwd)))
    with pytest.raises(UnsafeFileError, match=r"a\.pkl: refers to posix\.getcwd.*--trust"):
        load(file)
    file.write_bytes(instance("flask.app", "Flask", {}))
    with pytest.raises(UnsafeFileError, match=r"flask\.app\.Flask.*--allow-package flask"):
        load(file)


def test_allowed_package_admits_classes_of_graphs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops_of_mine.py").write_text(
        "from pytensor.graph.op import Op\n"
        "from pytensor.graph.basic import Apply\n"
        "class Twice(Op):\n"
        "    __props__ = ()\n"
        "    def make_node(self, x):\n"
        "        return Apply(self, [x], [x.type()])\n"
        "    def perform(self, node, inputs, outputs):\n"
        "        outputs[0][0] = 2 * inputs[0]\n"
        "class Other:\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import ops_of_mine

    x = pt.vector("x")
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps([ops_of_mine.Twice()(x)]))
    with pytest.raises(UnsafeFileError, match="--allow-package ops_of_mine"):
        load(file)
    graph = load(file, allow_packages=["ops_of_mine"])
    assert isinstance(graph.outputs[0].owner.op, ops_of_mine.Twice)
    file.write_bytes(pickle.dumps([ops_of_mine.Other()]))
    with pytest.raises(UnsafeFileError, match="not a class of ops"):
        load(file, allow_packages=["ops_of_mine"])


def test_code_in_left_out_places_is_never_built(marker: Path, tmp_path: Path) -> None:
    x = pt.vector("x")
    op = OpFromGraph([x], [x + 1])
    y = op(x)
    op._lop_op_cache[True,] = Calls(os.system, touch(marker))
    y.tag.note = Calls(os.system, touch(marker))
    file = tmp_path / "a.pkl"
    file.write_bytes(cloudpickle.dumps([y]))
    graph = load(file)
    assert graph.outputs[0].owner.op._lop_op_cache == {}
    assert not hasattr(graph.outputs[0].tag, "note")
    system = next(found for found in audit(file).globals if found.qualname == "system")
    assert system.left_out
    assert system.allowed
    assert not marker.exists()


def test_trusted_load_runs_what_the_file_asks_for(marker: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.pkl"
    file.write_bytes(pickle.dumps([pt.vector("x") + 1, Calls(os.system, touch(marker))]))
    with pytest.raises(LoadError, match="holds a list, not a graph"):
        load(file, trust=True)
    assert marker.exists()


def test_state_of_a_foreign_release_is_not_set(tmp_path: Path) -> None:
    state = {"seed": np.arange(3)}
    file = tmp_path / "a.pkl"
    file.write_bytes(instance("pytensor.tensor.shape", "Shape", state))
    with pytest.raises(UnsafeFileError, match="'seed' is not one that its constructor sets"):
        load(file)
