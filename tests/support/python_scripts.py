"""Running scripts that `to_python` returns."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import scanopt_cli as so
from scanopt_cli.ir.graph import GraphLike
from support.command_line import run

_ALONE = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "scanopt_cli":
            raise ImportError("scanopt is not installed")
sys.meta_path.insert(0, Refused())
sys.path = [entry for entry in sys.path if "scanopt" not in entry]
import runpy
names = runpy.run_path(sys.argv[1], run_name=sys.argv[2])
if sys.argv[2] != "__main__":
    print(len(names["inputs"]), len(names["outputs"]))
"""


def built_by(script: so.PythonScript) -> Any:
    """Return the names that a script gives, which runs from its file, in a namespace of its own."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.py"
        script.save(path)
        namespace: dict[str, Any] = {"__name__": "model", "__file__": str(path)}
        exec(compile(path.read_text("utf-8"), str(path), "exec"), namespace)
    return namespace


def assert_rebuilt(graph: GraphLike) -> str:
    """Check that the script of a graph builds that graph; return its text."""
    script = so.to_python(graph)
    names = built_by(script)
    assert so.digest((names["inputs"], names["outputs"])) == so.digest(graph)
    return script.text


def runs_alone(script: so.PythonScript, folder: Path, *, as_program: bool = False) -> str:
    """Return what a script prints in a process that has no scanopt."""
    path = folder / "alone.py"
    script.save(path)
    name = "__main__" if as_program else "model"
    done = run([sys.executable, "-c", _ALONE, str(path), name], folder, {})
    assert done.code == 0, done.err
    return done.out


def fails_alone(script: so.PythonScript, folder: Path) -> str:
    """Return the error of a script that fails in a process that has no scanopt."""
    path = folder / "bug.py"
    script.save(path)
    done = run([sys.executable, "-c", _ALONE, str(path), "__main__"], folder, {})
    assert done.code == 1, done.out
    return done.err


def lines_of_graph(script: so.PythonScript) -> int:
    """Return how many lines of a script build the graph, without imports and its ending."""
    built = script.text.partition('\nif __name__ == "__main__":')[0].splitlines()
    other = ("#", "import ", "from ")
    return sum(bool(line.strip()) and not line.startswith(other) for line in built)
