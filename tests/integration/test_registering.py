"""The passes get into PyTensor whichever is imported first, and PyTensor only if it is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scanopt_cli.integration.compilation.watching import after_import
from support.tiers import deep

_HERE = Path(__file__).parent
_COUNT = """

from support.compiled_gradients import counts, growth
from pytensor import function
from pytensor.compile.mode import optdb
assert "scanopt_loops" in optdb and "scanopt_trims" in optdb
print(counts(function(*growth(), mode=None)).mit_mot)
"""


def run(program: str, flags: str = "") -> str:
    """Run a program in a process of its own and return what it prints."""
    given = os.environ.get("PYTENSOR_FLAGS", "")
    environment = {
        **os.environ,
        "PYTENSOR_FLAGS": f"{given},linker=vm,{flags}",
        "PYTHONPATH": os.pathsep.join([str(_HERE), str(_HERE.parent)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module", ["scanopt_cli", "scanopt_cli.integration.capture.captured_program"]
)
def test_importing_scanopt_alone_imports_neither_pytensor_nor_numpy(module: str) -> None:
    """The second is in every program that a captured one starts."""
    program = f"import {module}, sys; print('pytensor' in sys.modules, 'numpy' in sys.modules)"
    assert run(program).split() == ["False", "False"]


@pytest.mark.deep
@pytest.mark.parametrize(
    "first", ["scanopt_cli", "pytensor", *deep("pytensor.tensor", "pytensor.scan")]
)
def test_either_may_be_imported_first(first: str) -> None:
    """Passes are registered, none of the modules that hold them is imported, and none is used."""
    second = "pytensor" if first == "scanopt_cli" else "scanopt_cli"
    program = (
        f"import sys; finders = len(sys.meta_path)\nimport {first}, {second}\n"
        "from pytensor.compile.mode import optdb\n"
        "import pytensor.tensor as pt\n"
        "x = pt.dscalar()\n"
        "pytensor.function([x], x + 1)\n"
        "print('scanopt_loops' in optdb, 'scanopt_cli.passes' in sys.modules)\n"
        "print(len(sys.meta_path) - finders)"
    )
    assert run(program).split() == ["True", "False", "0"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("flags", "mit_mots"),
    [
        ("optimizer_including=scanopt", "0"),
        *deep(("", "1"), ("optimizer_including=fusion:scanopt", "0")),
    ],
)
def test_the_flag_that_includes_tags(flags: str, mit_mots: str) -> None:
    assert run("import scanopt_cli" + _COUNT, flags).strip() == mit_mots


def test_what_was_imported_before_is_acted_on_at_once() -> None:
    called: list[str] = []
    after_import("os", lambda: called.append("os"))
    assert called == ["os"]


def test_an_import_that_fails_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "scanopt_watched_module.py"
    module.write_text("raise ValueError('not yet')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    finders = list(sys.meta_path)
    called: list[str] = []
    after_import(module.stem, lambda: called.append(module.stem))
    with pytest.raises(ValueError, match="not yet"):
        __import__(module.stem)
    assert called == []
    module.write_text("VALUE = 1  # of another length, so that no cached code is taken for it")
    __import__(module.stem)
    assert called == [module.stem]
    assert sys.meta_path == finders
    del sys.modules[module.stem]


def test_modules_that_do_not_exist_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    after_import("scanopt_no_such_module", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        __import__("scanopt_no_such_module")


def test_a_graph_without_loops_imports_nothing() -> None:
    """A block costs a program nothing until it compiles a loop."""
    code = (
        "import sys, pytensor, pytensor.tensor as pt, scanopt_cli as so\n"
        "x = pt.vector()\n"
        "with so.enabled():\n"
        "    pytensor.function([x], x + 1)([1.0])\n"
        "names = [name for name in sys.modules if name.startswith('scanopt_cli.')]\n"
        "heavy = ('passes', 'pipeline', 'loop', 'equivalence', 'analysis', 'reports')\n"
        "print([name for name in names if name.split('.')[1] in heavy])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_loop_over_numbers_imports_nothing_for_what_it_has_not() -> None:
    """Small arrays, loops that Ops replace, products that are added up, OpFromGraphs."""
    program = (
        "import sys\nimport pytensor, pytensor.tensor as pt, scanopt_cli\n"
        "x = pt.dvector('x')\n"
        "def step(x, y): return pt.sin(x) * y\n"
        "ys = pytensor.scan(step, [x], [pt.ones(())], return_updates=False)\n"
        "cost = ys[-1]\n"
        "with scanopt_cli.enabled(cache=False):\n"
        "    f = pytensor.function([x], [cost, pt.grad(cost, x)], mode='NUMBA')\n"
        "passes = 'scanopt_cli.passes.'\n"
        "print(*(name.removeprefix(passes) for name in sys.modules if name.startswith(passes)))"
    )
    imported = set(run(program).split())
    assert "of_traced_loops.unroll_small.unroll_small" in imported
    assert not imported & {
        "of_traced_loops.unroll_small.rules",
        "loops_to_ops.known_steps",
        "push_out_sums.stacked_products",
        "clean_ofg.ends",
        "of_scans.compile_safe.copies",
    }
