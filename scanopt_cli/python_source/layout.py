"""A plan as the text of a script: imports, definitions, inputs, one statement after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pytensor.graph.basic import Constant, Variable

from scanopt_cli.ir.dtypes import is_count
from scanopt_cli.python_source.code import (
    Binding,
    Code,
    Definition,
    Leaf,
    LongConstant,
    Operand,
    Reference,
)
from scanopt_cli.python_source.constants import GENERATOR, GENERATOR_SOURCE
from scanopt_cli.python_source.definitions import Function
from scanopt_cli.python_source.loop_calls import Signature
from scanopt_cli.python_source.names import Names
from scanopt_cli.python_source.planning import Plan, Step, stands_bare
from scanopt_cli.python_source.wrapping import joined, wrapped

_MODULES = {
    "numpy": ("np", "import numpy as np"),
    "pytensor": ("pytensor", "import pytensor"),
    "pytensor.scalar": ("ps", "import pytensor.scalar as ps"),
    "pytensor.tensor": ("pt", "import pytensor.tensor as pt"),
    "pytensor.tensor.linalg": ("pt.linalg", "import pytensor.tensor as pt"),
    "pytensor.tensor.random": ("pt.random", "import pytensor.tensor as pt"),
    "json": ("json", "import json"),
}
ALIASES = ("np", "pytensor", "ps", "pt", "json", "Path")
_LONGEST_NESTED = 44
_LONGEST_CONSTANT = 60
_LONGEST_TARGET = 70
_LINES_OF_A_SHORT_CALL = 3
_INDENT = " " * 4
_STANDARD = ("import json", "import os", "from pathlib import Path")


class Globals:
    """What all functions of a script see: imports, definitions, arrays of the file beside it."""

    def __init__(self) -> None:
        self.names = Names(ALIASES)
        self.imports: dict[str, None] = {}
        self.imported: dict[str, list[str]] = {}
        self.arrays: dict[str, Any] = {}
        self._texts: dict[Any, str] = {}
        self._keys = Names()
        self.has_generator = False

    def add(self, leaves: Iterable[Leaf]) -> None:
        """Give names to what is referred to; no variable gets one of them."""
        for leaf in leaves:
            if isinstance(leaf, Reference):
                if leaf not in self._texts:
                    self._texts[leaf] = self._imported(leaf)
            elif isinstance(leaf, LongConstant):
                if id(leaf.value) not in self._texts:
                    key = self._keys.unique(leaf.hint, "array")
                    self.arrays[key] = leaf.value
                    self._texts[id(leaf.value)] = f"constants[{key!r}]".replace("'", '"')
            elif isinstance(leaf, Definition) and leaf not in self._texts:
                default = "step" if isinstance(leaf, Function) else "op"
                self._texts[leaf] = self.names.unique(leaf.hint, default)

    def text(self, leaf: Reference | LongConstant | Definition) -> str:
        """Return the text that stands for what is referred to."""
        return self._texts[id(leaf.value) if isinstance(leaf, LongConstant) else leaf]

    def _imported(self, leaf: Reference) -> str:
        if leaf == GENERATOR:
            self.has_generator = True
            self.imports["import numpy as np"] = None
            return leaf.name
        if leaf.module in _MODULES:
            alias, line = _MODULES[leaf.module]
            self.imports[line] = None
            return f"{alias}.{leaf.name}"
        root, dot, rest = leaf.name.partition(".")
        known = (leaf.module, root)
        if known not in self._texts:
            name = self.names.unique(root, "imported")
            renamed = "" if name == root else f" as {name}"
            self.imported.setdefault(leaf.module, []).append(f"{root}{renamed}")
            self._texts[known] = name
        return f"{self._texts[known]}{dot}{rest}"

    def import_lines(self) -> Iterator[str]:
        """Yield what the script imports: of the standard library, and then of others."""
        own = [line for line in _STANDARD if line in self.imports]
        yield from (*own, "") if own else ()
        yield from sorted(self.imports.keys() - own)
        for module, names in sorted(self.imported.items()):
            yield from statement(f"from {module} import {', '.join(sorted(names))}")

    def plain(self, code: Code) -> str:
        """Return an expression without operands as text."""
        return code.render(lambda leaf: (self.text(leaf), Binding.ATOM))  # type: ignore[arg-type]


class Block:
    """The statements of a function, or those of the script itself.

    What is read once, and is short, stands where it is read.
    """

    def __init__(
        self,
        scope: Globals,
        names: Names,
        plan: Plan,
        read: Sequence[Variable],
        indent: str = "",
    ) -> None:
        self.lines: list[str] = []
        self._indent = indent
        self._scope = scope
        self._names = names
        self._plan = plan
        self._texts: dict[Variable, tuple[str, Binding]] = {}
        self._read = Counter(plan.actual(variable) for variable in read)
        for step in plan.steps:
            for operand in step.code.operands:
                if stands_bare(operand, step.bare) is None:
                    self._read[plan.actual(operand.variable)] += 1

    def name(self, variable: Variable, wanted: str | None, default: str) -> str:
        """Give a name to a variable."""
        name = self._names.unique(wanted, default)
        self._texts[variable] = name, Binding.ATOM
        return name

    def write(self) -> None:
        """Write the statements of the plan."""
        for step in self._plan.steps:
            self._statement(step)

    def render(self, code: Code, *, bare: bool = False) -> str:
        """Return an expression as text."""

        def text_of(leaf: Leaf) -> tuple[str, Binding]:
            if not isinstance(leaf, Operand):
                return self._scope.text(leaf), Binding.ATOM
            plain = stands_bare(leaf, bare)
            if plain is not None:
                return self._scope.plain(plain), plain.binding
            return self._texts[self._plan.actual(leaf.variable)]

        return code.render(text_of)

    def outputs(self) -> str:
        """Return the outputs of the plan, as a list."""
        actual = map(self._plan.actual, self._plan.outputs)
        return f"[{', '.join(self._texts[variable][0] for variable in actual)}]"

    def _statement(self, step: Step) -> None:
        text = self.render(step.code, bare=step.bare)
        first = step.results[0]
        if len(step.results) == 1 and not step.unpacks:
            times = self._read[first]
            is_constant = isinstance(first, Constant)
            longest = _LONGEST_CONSTANT if is_constant else _LONGEST_NESTED
            is_short = len(text) <= longest and "\n" not in text and not self._wanted(first)
            if not times or (is_short and (is_constant or times == 1)):
                self._texts[first] = text, step.code.binding
                return
        if isinstance(step.form, tuple):
            target = ", ".join(self._targets(part) for part in step.form)
        else:
            targets = [self._target(variable) for variable in step.results]
            target = ", ".join(targets) + ("," if step.unpacks and len(targets) == 1 else "")
        if len(target) > _LONGEST_TARGET:
            target = f"({target})"
        self.lines += statement(f"{target} = {text}", self._indent)

    def _targets(self, form: Any) -> str:
        """Return what takes a part of a nested result."""
        if form is None:
            return "_"
        if isinstance(form, Variable):
            return self._target(form)
        if not any(self._read[variable] for variable in form):
            return "_"
        return f"({', '.join(map(self._target, form))})"

    def _target(self, variable: Variable) -> str:
        if not self._read[variable]:
            return "_"
        default = "n" if is_count(variable) else "v"
        return self.name(variable, self._wanted(variable) or variable.name, default)

    def _wanted(self, variable: Variable) -> str | None:
        """Return what a person called a variable, if anyone did; ``x[0:]`` is PyTensor's."""
        wanted = self._plan.hints.get(variable) or variable.name
        return None if not wanted or isinstance(variable, Constant) or "[" in wanted else wanted


def statement(text: str, indent: str = "") -> list[str]:
    """Return a statement in lines that are not too long; in one, if it fits.

    A call that has a line for each argument has one for all of them, if that is long enough.
    """
    if "\n" in text:
        short = list(wrapped(joined(text), indent))
        if len(short) <= _LINES_OF_A_SHORT_CALL:
            return short
    return [
        part
        for line in text.split("\n")
        for part in wrapped(line.lstrip(), indent + line[: len(line) - len(line.lstrip())])
    ]


def function_lines(function: Function, scope: Globals) -> list[str]:
    """Return the definition of a function."""
    names = scope.names.inside()
    plan = function.plan
    read = [o.variable for o in function.returned.operands]
    block = Block(scope, names, plan, read, _INDENT)
    parameters = [
        block.name(variable, wanted, "x")
        for variable, wanted in zip(plan.inputs, function.parameters, strict=True)
    ]
    parts: list[str] = []
    if function.signature is not None:
        parameters, parts = _grouped(parameters, function.signature, names)
    block.write()
    returned = f"return {block.render(function.returned)}"
    head = f"def {scope.text(function)}({', '.join(parameters)}):"
    return [head, *parts, *block.lines, *statement(returned, _INDENT)]


def _grouped(
    parameters: Sequence[str], signature: Signature, names: Names
) -> tuple[list[str], list[str]]:
    """Return the parameters of a function whose values are nested, and what takes them apart."""
    rest, heads, parts = list(parameters), [], []
    for role, size in signature.groups:
        own = rest[:size]
        del rest[:size]
        if size == 1:
            heads += own
            continue
        head = names.unique(role, role) if size else f"_{role}"
        heads.append(head)
        if size:
            parts += statement(f"{', '.join(own)} = {head}", _INDENT)
    return heads, parts


def definition_lines(definitions: Sequence[Definition], scope: Globals) -> Iterator[str]:
    """Yield the definitions of a script, with blank lines around functions."""
    if scope.has_generator:
        yield from ("", "", *GENERATOR_SOURCE.splitlines(), "")
    was_function = True
    for definition in definitions:
        if isinstance(definition, Function):
            yield from ("", "", *function_lines(definition, scope))
            was_function = True
        else:
            assert definition.code is not None
            yield from ("", "") if was_function else ()
            name = scope.text(definition)
            yield from [f"# {definition.note}"] if definition.note else []
            yield from statement(f"{name} = {scope.plain(definition.code)}")
            for setting, value in definition.settings.items():
                yield f"{name}.{setting} = {scope.plain(value)}"
            was_function = False


def needed(made: Sequence[Definition], codes: Iterable[Code]) -> list[Definition]:
    """Return those of the definitions that ``codes`` refer to, directly or through others."""
    waiting = [leaf for code in codes for leaf in code.leaves() if isinstance(leaf, Definition)]
    found: set[Definition] = set()
    while waiting:
        definition = waiting.pop()
        if definition not in found:
            found.add(definition)
            waiting += [leaf for leaf in leaves_of(definition) if isinstance(leaf, Definition)]
    return [definition for definition in made if definition in found]


def leaves_of(definition: Definition) -> Iterator[Leaf]:
    """Yield what a definition refers to."""
    codes = [definition.code] if definition.code is not None else []
    codes += definition.settings.values()
    if isinstance(definition, Function):
        codes = [*(step.code for step in definition.plan.steps), definition.returned]
        for step in definition.plan.steps:
            yield from bare_leaves(step)
    for code in codes:
        yield from code.leaves()


def bare_leaves(step: Step) -> Iterator[Leaf]:
    """Yield what the plain numbers of a step refer to: ``np.nan``."""
    for operand in step.code.operands:
        plain = stands_bare(operand, step.bare)
        if plain is not None:
            yield from plain.leaves()
