"""Expressions of Python whose operands are variables of a graph.

An expression is evaluated before anything has a name: what it refers to is put into a namespace of
its own. Text of a graph's author only ever gets into it as the ``repr`` of a string.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import Any

from pytensor.graph.basic import Variable

from scanopt_cli.text import printable


class Binding(IntEnum):
    """How tightly the outermost operation of an expression binds its operands."""

    LOOSE = 0
    COMPARISON = 1
    OR = 2
    XOR = 3
    AND = 4
    SHIFT = 5
    SUM = 6
    PRODUCT = 7
    UNARY = 8
    POWER = 9
    ATOM = 10


@dataclass(frozen=True, slots=True)
class Operand:
    """A variable that an expression reads.

    ``least`` is how tightly its text must bind to stand without parentheses; ``bare`` says whether
    a constant may stand as a plain number, and ``rows`` whether a short one may as a list.
    """

    variable: Variable
    least: Binding = Binding.LOOSE
    bare: bool = True
    rows: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that a script imports: ``pt.exp``."""

    module: str
    name: str

    @property
    def value(self) -> Any:
        """What it refers to."""
        found: Any = import_module(self.module)
        for part in self.name.split("."):
            found = getattr(found, part)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class LongConstant:
    """An array that stands in the file beside a script."""

    value: Any
    hint: str | None = None


@dataclass(slots=True, eq=False)
class Definition:
    """What a script defines before it builds its graph: a function, or an Op.

    Attributes
    ----------
    hint
        What it might be called.
    value
        The function or Op itself.
    code
        The expression that makes it, of an Op.
    settings
        Attributes of an Op that are set afterwards.
    note
        What a comment says of it.
    """

    hint: str | None
    value: Any
    code: Code | None = None
    settings: Mapping[str, Code] = field(default_factory=dict)
    note: str | None = None


_PUBLIC = {"scanopt_cli.loop": ("scanopt_cli", "loop")}
"""Packages whose own names are better than those of their modules: how they are imported."""

type Leaf = Operand | Reference | LongConstant | Definition
type Part = str | Leaf | Code


@dataclass(frozen=True, slots=True)
class Code:
    """An expression: text between its parts."""

    parts: tuple[Part, ...]
    binding: Binding = Binding.ATOM
    least: Binding = Binding.LOOSE

    def leaves(self) -> Iterator[Leaf]:
        """Yield what it refers to, from left to right."""
        for part in self.parts:
            if isinstance(part, Code):
                yield from part.leaves()
            elif not isinstance(part, str):
                yield part

    @property
    def operands(self) -> list[Operand]:
        """The variables that it reads."""
        return [leaf for leaf in self.leaves() if isinstance(leaf, Operand)]

    def render(self, text_of: Callable[[Leaf], tuple[str, Binding]]) -> str:
        """Return it as text, in which ``text_of`` says what stands for a leaf."""
        texts = []
        for part in self.parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            if isinstance(part, Code):
                text, binding, least = part.render(text_of), part.binding, part.least
            else:
                text, binding = text_of(part)
                least = part.least if isinstance(part, Operand) else Binding.LOOSE
            texts.append(f"({text})" if binding < least else text)
        return "".join(texts)

    def evaluate(self, value_of: Callable[[Leaf], Any]) -> Any:
        """Return its value, where ``value_of`` says what a leaf is."""
        namespace: dict[str, Any] = {}

        def bound(leaf: Leaf) -> tuple[str, Binding]:
            name = f"_{len(namespace)}"
            namespace[name] = value_of(leaf)
            return name, Binding.ATOM

        text = self.render(bound)
        return eval(text, namespace)


def code(
    template: str, *parts: Part | Variable, binding: Binding = Binding.ATOM, bare: bool = True
) -> Code:
    """Return an expression: ``template``, with one part for each ``{}`` in it."""
    texts = template.split("{}")
    assert len(texts) == len(parts) + 1, template
    found: list[Part] = [texts[0]]
    for part, text in zip(parts, texts[1:], strict=True):
        leaf = Operand(part, bare=bare) if isinstance(part, Variable) else part
        found += [leaf, text]
    return Code(tuple(found), binding)


def text(value: str) -> Code:
    """Return text that is no template as an expression."""
    return Code((value,))


def quoted(value: str) -> Code:
    """Return a string as an expression, in double quotes if it has neither kind.

    What a log might take for a command is escaped: ``\\x3a`` is a colon in a string, too.
    """
    literal = printable(repr(str(value)))
    if literal[0] == "'" and '"' not in literal and "\\'" not in literal:
        literal = f'"{literal[1:-1]}"'
    return text(literal)


def sequence(parts: Sequence[Part | Variable], begin: str = "", end: str = "") -> Code:
    """Return parts with commas between them."""
    return code(f"{begin}{', '.join(['{}'] * len(parts))}{end}", *parts)


def listed(parts: Sequence[Part | Variable]) -> Code:
    """Return a list of parts."""
    return sequence(parts, "[", "]")


def paired(parts: Sequence[Part | Variable]) -> Code:
    """Return a tuple of parts."""
    return sequence(parts, "(", ",)" if len(parts) == 1 else ")")


def call(
    function: Part,
    arguments: Sequence[Part | Variable] = (),
    options: Mapping[str, Part | Variable] | None = None,
) -> Code:
    """Return a call of ``function``."""
    given = options or {}
    listed_parts = ["{}"] * len(arguments) + [f"{name}={{}}" for name in given]
    if isinstance(function, Code):
        function = Code(function.parts, function.binding, Binding.ATOM)
    return code(f"{{}}({', '.join(listed_parts)})", function, *arguments, *given.values())


def method(
    variable: Variable | Code, name: str, *arguments: Part | Variable, **options: Part
) -> Code:
    """Return a call of a method of ``variable``."""
    owner: Part = (
        Code(variable.parts, variable.binding, Binding.ATOM)
        if isinstance(variable, Code)
        else Operand(variable, Binding.ATOM, bare=False)
    )
    return call(code(f"{{}}.{name}", owner), arguments, options)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An expression that may make a node.

    Attributes
    ----------
    code
        The expression.
    results
        The variables that it returns, one, or as many as its list has.
    derived
        Further variables, each with an expression of the results.
    form
        How the results are nested in tuples, if they are; None stands where it returns None.
    """

    code: Code
    results: tuple[Variable, ...]
    derived: tuple[tuple[Variable, Code], ...] = field(default=())
    form: Any = None


def reference_to(item: Any) -> Reference | None:
    """Return how a class or function is imported, if it can be."""
    module, name = getattr(item, "__module__", None), getattr(item, "__qualname__", None)
    if not module or not name or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in str(name).split("."):
        if not part.isidentifier():
            return None
        found = getattr(found, part, None)
    if found is not item:
        return None
    for package, (parent, child) in _PUBLIC.items():
        if getattr(sys.modules.get(package), str(name), None) is item:
            return Reference(parent, f"{child}.{name}")
    return Reference(str(module), str(name))
