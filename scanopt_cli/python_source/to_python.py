"""`to_python`: a graph as a script without scanopt, run once to see that it builds that graph."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum, auto
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.configdefaults import config
from pytensor.graph.basic import Variable
from pytensor.tensor.random.type import RandomGeneratorType

from scanopt_cli.environment import STRICT
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import ScanoptError, brief
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, loaded_graph
from scanopt_cli.python_source.code import Code, Reference, call, quoted
from scanopt_cli.python_source.constants import generator_code, stored, value_code
from scanopt_cli.python_source.definitions import Definitions
from scanopt_cli.python_source.layout import (
    Block,
    Globals,
    bare_leaves,
    definition_lines,
    leaves_of,
    needed,
    statement,
)
from scanopt_cli.python_source.planning import Plan
from scanopt_cli.python_source.script import PythonScript
from scanopt_cli.python_source.values import (
    CannotBeWrittenError,
    array_code,
    value_of_reference,
)
from scanopt_cli.text import printable

_LONGEST_SOURCE = 80
MODE = "pytensor.compile.mode.Mode"
# No variable of the graph has one of these names.
_NAMES_OF_ENDINGS = ("plain", "compiled", "wanted", "found", "os", "scanopt_cli")
_ANY_INPUT = 'on_unused_input="ignore"'


def to_python(graph: GraphLike, *, values: bool = False) -> PythonScript:
    """Return ``graph`` as a Python script that builds it again, without scanopt.

    Loops are calls of ``pytensor.scan`` where they have that form, and Scans with their bodies
    where not. TracedLoops are calls of the functions of `scanopt_cli.loop`, which they need, or
    stand with their bodies, too. Other operations stand by their public functions where there are
    some. The script has the names of the graph's variables, as far as
    they can be names in Python. Running it gives ``inputs`` and ``outputs``, of a graph with the
    same `digest`: that is tried before the script is returned. The mode that a Scan was made with
    is left out.

    Parameters
    ----------
    graph
        A `Graph`, the path of its file, a ``FunctionGraph``, or a pair of inputs and outputs.
    values
        Whether to add recorded values of the inputs; run as a program, the script then prints the
        outputs.

    Raises
    ------
    ScanoptError
        If an Op, a Type or a constant cannot be written, which it names; or ``values`` are asked
        for and there are none.
    """
    given = loaded_graph(graph)
    whole = given if isinstance(given, Graph) else as_graph(given)
    if values and not whole.recorded:
        raise ScanoptError(
            "has no recorded values",
            where=whole.source,
            hint="leave them out, or capture the graph with its first call",
        )
    return written(whole, Ending.PRINTS if values else Ending.NONE)


class Ending(StrEnum):
    """What a script does with recorded values if it is run as a program."""

    NONE = auto()
    PRINTS = auto()
    """It prints the outputs."""
    COMPARES = auto()
    """It compiles the graph with all of PyTensor's rewrites and with those alone that no graph can
    do without, prints the outputs of both, and fails if they differ."""
    COMPILES = auto()
    """It compiles the graph."""
    OPTIMIZES = auto()
    """It lets scanopt run a pipeline on the graph, in which an error of a pass is raised."""


def written(whole: Graph, ending: Ending, detail: str = "") -> PythonScript:
    """Return a graph as a script with an ending.

    For the ending, ``detail`` is the code of a mode, or the text of a pipeline.

    Raises
    ------
    ScanoptError
        If an Op, a Type or a constant cannot be written.
    """
    with (
        bounded_folding(),
        config.change_flags(traceback__limit=0),
        # What is tried and given up is nobody's business.
        warnings.catch_warnings(action="ignore"),
    ):
        wanted, reason = digest(whole.fgraph), "it builds another graph"
        # Shared variables are listed as inputs only if their order would be lost.
        for as_calls, lists_shared in product((True, False), (False, True)):
            writer = _Writer(whole, as_calls=as_calls, lists_shared=lists_shared)
            script = writer.script(ending, detail)
            try:
                if _built(script) == wanted:
                    return script
            except Exception as error:
                reason = brief(error)
    raise ScanoptError(
        f"its script does not build it: {reason}",
        where=whole.source,
        hint="report the graph as a bug of scanopt",
    )


def _ending(inputs: str, ending: Ending, detail: str) -> Iterator[str]:
    """Yield the statements that compile a graph, or rewrite it."""
    if ending is Ending.OPTIMIZES:
        yield f'os.environ["{STRICT}"] = "1"  # an error of a pass is raised'
        yield f"scanopt_cli.optimize((inputs, outputs), {detail!r})"
        return
    mode = f", mode={detail}" if detail else ""
    if ending is Ending.COMPARES:
        plain = f', mode={MODE}("vm", "minimum_compile")'
        yield f"plain = pytensor.function({inputs}, outputs{plain}, {_ANY_INPUT})"
    name = "compiled" if ending is Ending.COMPARES else "function"
    yield f"{name} = pytensor.function({inputs}, outputs{mode}, {_ANY_INPUT})"


def _calling(arguments: str, ending: Ending, *, has_generators: bool) -> Iterator[str]:
    """Yield the statements that call what was compiled.

    Random generators are compared by what they draw.
    """
    if ending is Ending.PRINTS:
        yield f'print(*function({arguments}), sep="\\n")'
        return
    yield f"for wanted, found in zip(plain({arguments}), compiled({arguments})):"
    if has_generators:
        yield "    if isinstance(wanted, np.random.Generator):"
        yield "        wanted, found = wanted.random(), found.random()"
    yield '    print("wanted:", wanted, "found:", found)'
    yield "    np.testing.assert_allclose(found, wanted, rtol=1e-6)"


def _built(script: PythonScript) -> str:
    """Return the digest of the graph that a script builds in a namespace of its own."""
    with _scratch(script) as path:
        namespace: dict[str, Any] = {"__name__": "graph", "__file__": path}
        exec(compile(script.text, path, "exec"), namespace)
        return digest((namespace["inputs"], namespace["outputs"]))


@contextmanager
def _scratch(script: PythonScript) -> Iterator[str]:
    if not script.constants:
        yield "graph.py"
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.py"
        script.save(path)
        yield str(path)


class _Writer:
    """Writes one graph, with its shared variables among the ``inputs`` or without them."""

    def __init__(self, graph: Graph, *, as_calls: bool, lists_shared: bool) -> None:
        self._graph = graph
        self._lists_shared = lists_shared
        self._definitions = Definitions(graph.source, as_calls=as_calls)
        self._values = self._definitions.values

    def script(self, ending: Ending, detail: str) -> PythonScript:
        graph, fgraph = self._graph, self._graph.fgraph
        made = [self._input(variable) for variable in fgraph.inputs]
        arguments = [value for _, value in made]
        planner = self._definitions.planner(fgraph.inputs, arguments)
        for variable, name in zip(fgraph.outputs, graph.output_names, strict=False):
            if name and not variable.name:
                planner.hints[variable] = name
        plan = planner.plan(fgraph.outputs)
        has_values = ending in (Ending.PRINTS, Ending.COMPARES)
        # What goes into a bug report is one file, if it can be.
        keep = array_code if ending is Ending.COMPARES else stored
        calls = [self._call(values, keep) for values in graph.recorded] if has_values else []
        codes = [expression for expression, _ in made]
        scope = Globals()
        for name in _NAMES_OF_ENDINGS if ending is not Ending.NONE else ():
            scope.names.unique(name, name)
        used = needed(self._definitions.made, [step.code for step in plan.steps])
        for definition in used:
            scope.add(leaves_of(definition))
        for expression in (*codes, *(step.code for step in plan.steps)):
            scope.add(expression.leaves())
        for step in plan.steps:
            scope.add(bare_leaves(step))
        for recorded in calls:
            for value in recorded:
                scope.add(value.leaves())
        if ending is Ending.OPTIMIZES:
            scope.imports |= dict.fromkeys(("import os", "import scanopt_cli"))
        if ending not in (Ending.NONE, Ending.OPTIMIZES) or config.floatX != "float64":
            scope.imports["import pytensor"] = None
        if ending is Ending.COMPARES:
            scope.imports["import numpy as np"] = None
        lines = [*definition_lines(used, scope)]
        lines += ["", "", *self._statements(scope, plan, codes, calls, ending, detail)]
        return PythonScript(
            text="\n".join([*self._head(scope), *lines, ""]),
            constants=scope.arrays,
            source=graph.source,
        )

    def _head(self, scope: Globals) -> Iterator[str]:
        source = printable(self._graph.source)[-_LONGEST_SOURCE:]
        yield f"# Written by scanopt python from {source}"
        yield ""
        if scope.arrays:
            scope.imports["import numpy as np"] = None
            scope.imports["from pathlib import Path"] = None
        yield from scope.import_lines()
        if config.floatX != "float64":
            yield from ("", f'pytensor.config.floatX = "{config.floatX}"')
        if scope.arrays:
            yield from ("", 'constants = np.load(Path(__file__).with_suffix(".npz"))')

    def _statements(
        self,
        scope: Globals,
        plan: Plan,
        codes: Sequence[Code],
        calls: Sequence[Sequence[Code]],
        ending: Ending,
        detail: str,
    ) -> Iterator[str]:
        block = Block(scope, scope.names, plan, plan.outputs)
        names = []
        for variable, expression in zip(plan.inputs, codes, strict=True):
            default = "x" if hasattr(variable.type, "ndim") else "rng"
            name = block.name(variable, variable.name, default)
            names.append(name)
            yield from statement(f"{name} = {scope.plain(expression)}")
        block.write()
        yield from ("", *block.lines, "") if block.lines else [""]
        is_shared = [isinstance(v, SharedVariable) for v in plan.inputs]
        own = [name for name, shared in zip(names, is_shared, strict=True) if not shared]
        listed_names = names if self._lists_shared else own
        yield from statement(f"inputs = [{', '.join(listed_names)}]")
        yield from statement(f"outputs = {block.outputs()}")
        if ending is Ending.NONE:
            return
        yield from ("", 'if __name__ == "__main__":')
        lines = list(_ending(f"[{', '.join(own)}]", ending, detail))
        has_generators = any(isinstance(v.type, RandomGeneratorType) for v in plan.outputs)
        for recorded in calls:
            texts = [scope.plain(value) for value in recorded]
            given = [text for text, shared in zip(texts, is_shared, strict=True) if not shared]
            lines += [
                f"{name}.set_value({text})"
                for name, shared, text in zip(names, is_shared, texts, strict=True)
                if shared
            ]
            lines += _calling(", ".join(given), ending, has_generators=has_generators)
        for line in lines:
            text = line.lstrip()
            yield from statement(text, f"    {line.removesuffix(text)}")

    def _input(self, variable: Variable) -> tuple[Code, Variable]:
        """Return how an input is made, and one that is made so."""
        try:
            for expression in self._input_codes(variable):
                made = expression.evaluate(value_of_reference)
                if made.type == variable.type and type(made.type) is type(variable.type):
                    return expression, made
            reason = ""
        except Exception as error:
            reason = f": {error if isinstance(error, CannotBeWrittenError) else brief(error)}"
        raise ScanoptError(
            f"the input {variable.name or ''} of type {variable.type} cannot be written as "
            f"Python{reason}",
            where=self._graph.source,
        )

    def _input_codes(self, variable: Variable) -> Iterator[Code]:
        name = None if variable.name is None else str(variable.name)
        if not isinstance(variable, SharedVariable):
            yield self._values.variable(variable.type, name)
            return
        content = variable.get_value(borrow=True)
        if isinstance(content, np.ndarray | np.generic):
            held = array_code(np.asarray(content), name)
        else:
            held = value_code(content, self._values, name)
        options = {} if name is None else {"name": quoted(name)}
        yield call(Reference("pytensor", "shared"), [held], options)
        shape = self._values.of(tuple(getattr(variable.type, "shape", ())))
        yield call(Reference("pytensor", "shared"), [held], {**options, "shape": shape})

    def _call(
        self, arguments: Sequence[Any], keep: Callable[[np.ndarray, str | None], Code]
    ) -> list[Code]:
        """Return recorded arguments, of which ``keep`` says how arrays are written."""
        found = []
        for variable, value in zip(self._graph.fgraph.inputs, arguments, strict=True):
            hint = f"value_of_{variable.name or 'input'}"
            if isinstance(value, np.random.Generator):
                found.append(generator_code(value, hint))
                continue
            array = np.asarray(value, dtype=getattr(variable.type, "dtype", None))
            found.append(keep(array, hint))
        return found
