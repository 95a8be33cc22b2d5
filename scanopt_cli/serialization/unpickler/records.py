"""What a pickle says, as inert records: nothing it names is imported, called or built.

`read_records` runs the opcodes that `pickletools` reads, but where Python's unpickler would import
a global it leaves a `Global`, and where it would call something it leaves a `Call`. The rest of
the safe loader looks at these records and makes its own objects from the parts it understands.
What it does not understand stays what it is here: a note about a call that nobody makes.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from scanopt_cli.errors import LoadError, UnsafeFileError, brief
from scanopt_cli.serialization.unpickler.bounds import KeyBounds, TextBoundedStream

# A node takes about 40; a few megabytes of compressed opcodes would keep a reader for hours.
_MOST_OPCODES = 5_000_000
# An empty set is one opcode, and takes as much memory as twenty numbers.
_MOST_SETS = 100_000


@dataclass(slots=True, eq=False)
class Global:
    """A reference to ``module.name``."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"[:200]


@dataclass(slots=True, eq=False)
class Call:
    """A call that a pickle asks for, with all that it does to the result afterwards."""

    function: Any
    args: Any
    kwargs: Any = None
    state: Any = None
    has_state: bool = False
    items: list[Any] | None = None
    pairs: list[tuple[Any, Any]] | None = None
    setters: list[Call] | None = None
    """Calls with this one as their first argument, made only for what they do to it."""
    makes_instance: bool = field(default=False, kw_only=True)
    """Whether ``function`` is a class that is asked for an instance without running its init."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A pickle's root object and every global that the pickle mentions, used or not."""

    root: Any
    globals: tuple[Global, ...]


def read_records(data: bytes, where: str) -> Recording:
    """Return what the pickle ``data`` says; ``where`` is the file that messages name.

    Raises
    ------
    LoadError
        If ``data`` is not a whole pickle.
    UnsafeFileError
        If it uses a feature that no graph needs: extension codes, persistent ids, state for
        something that it did not make itself.
    """
    machine = _Machine(where)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(TextBoundedStream(data))):
            if opcode.name == "STOP":
                return Recording(machine.finish(), tuple(machine.globals))
            if count == _MOST_OPCODES:
                raise ValueError(f"it has more than {_MOST_OPCODES:,} opcodes")
            machine.run[opcode.name](argument)
    except LoadError:
        raise
    except Exception as error:
        if _is_text(data[:1000]):
            raise LoadError(
                "is text, not a whole pickle", where=where, hint="give a graph file"
            ) from None
        raise LoadError(
            f"not a readable pickle: {brief(error)}",
            where=where,
            hint="the file may be truncated or of another kind; write it again",
        ) from None
    raise LoadError("the pickle has no end", where=where, hint="write it again")


def _is_text(data: bytes) -> bool:
    try:
        return all(char.isprintable() or char.isspace() for char in data.decode())
    except UnicodeDecodeError:
        return False


class _Machine:
    """The stack machine of a pickle: `run` holds what each opcode does with its argument.

    Most opcodes either put what they make of the topmost values in the place of these, or hand
    these values to what lies below them.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # one list for each open mark
        self.memo: dict[int, Any] = {}
        self.globals: list[Global] = []
        self.keys = KeyBounds()
        self.sets = 0
        self.run: dict[str, Callable[[Any], object]] = {
            "PROTO": lambda _: None,
            "FRAME": lambda _: None,
            "MARK": self.mark,
            "POP": self.pop,
            "POP_MARK": lambda _: self.taken(),
            "DUP": lambda _: self.push(self.stack[-1]),
            "NONE": lambda _: self.push(None),
            "NEWTRUE": lambda _: self.push(True),
            "NEWFALSE": lambda _: self.push(False),
            "MEMOIZE": lambda _: self.put(len(self.memo)),
            "GLOBAL": lambda pair: self.push(self.named(pair)),
            "INST": lambda pair: self.push(Call(self.named(pair), tuple(self.taken()))),
            "EMPTY_LIST": self.pushes(list, 0),
            "EMPTY_TUPLE": self.pushes(tuple, 0),
            "EMPTY_DICT": self.pushes(dict, 0),
            "EMPTY_SET": self.pushes(partial(self.new_set, set), 0),
            "LIST": self.pushes(list),
            "TUPLE": self.pushes(tuple),
            "TUPLE1": self.pushes(tuple, 1),
            "TUPLE2": self.pushes(tuple, 2),
            "TUPLE3": self.pushes(tuple, 3),
            "DICT": self.pushes(self.new_dict),
            "FROZENSET": self.pushes(partial(self.new_set, frozenset)),
            "STACK_GLOBAL": self.pushes(lambda parts: self.mention(*parts), 2),
            "OBJ": self.pushes(self.applied),
            "REDUCE": self.pushes(lambda parts: Call(*parts), 2),
            "NEWOBJ": self.pushes(lambda parts: Call(*parts, makes_instance=True), 2),
            "NEWOBJ_EX": self.pushes(lambda parts: Call(*parts, makes_instance=True), 3),
            "APPEND": self.updates(self.extend, 1),
            "APPENDS": self.updates(self.extend),
            "ADDITEMS": self.updates(self.add_members),
            "SETITEM": self.updates(self.set_items, 2),
            "SETITEMS": self.updates(self.set_items),
            "BUILD": self.updates(self.give_state, 1),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self.put),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), self.get),
            **dict.fromkeys(_LITERALS, self.push),
            **{name: partial(self.refuse, what) for name, what in _REFUSED.items()},
        }

    def finish(self) -> Any:
        if len(self.stack) != 1 or self.below:
            raise ValueError("it does not end with one object")
        return self.stack[0]

    def refuse(self, what: str, _: object = None) -> NoReturn:
        raise UnsafeFileError(
            f"the pickle uses {what}, which no graph needs",
            where=self.where,
            hint="--trust loads it, for files of your own",
        )

    # the stack and the memo

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: object) -> None:
        self.below.append(self.stack)
        self.stack = []

    def taken(self, count: int | None = None) -> list[Any]:
        """Take the topmost ``count`` values off the stack, or else all above the mark."""
        if count is None:
            items, self.stack = self.stack, self.below.pop()
            return items
        start = len(self.stack) - count
        if start < 0:
            raise IndexError("the stack is too short")
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def pushes(
        self, make: Callable[[list[Any]], Any], count: int | None = None
    ) -> Callable[[object], None]:
        """Return an opcode that puts what ``make`` makes of the topmost values in their place."""
        return lambda _: self.push(make(self.taken(count)))

    def updates(
        self, change: Callable[[Any, list[Any]], None], count: int | None = None
    ) -> Callable[[object], None]:
        """Return an opcode by which ``change`` adds the topmost values to what is below them."""

        def run(_: object) -> None:
            items = self.taken(count)
            change(self.stack[-1], items)

        return run

    def pop(self, _: object) -> None:
        if not self.stack:
            self.taken()
            return
        left = self.stack.pop()
        if type(left) is Call and type(left.args) is tuple and left.args:
            target = left.args[0]
            if type(target) is Call:
                target.setters = target.setters or []
                target.setters.append(left)

    def put(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def get(self, key: int) -> None:
        self.push(self.memo[key])

    # containers

    def new_set(self, kind: type[Any], items: list[Any]) -> Any:
        self.sets += 1
        if self.sets > _MOST_SETS:
            raise ValueError(f"it has more than {_MOST_SETS:,} sets")
        return kind(map(self.keys.checked, items))

    def new_dict(self, items: list[Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        self.set_items(made, items)
        return made

    def extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is Call:
            target.items = target.items or []
            target.items.extend(items)
        elif type(target) is list:
            target.extend(items)
        else:
            self.refuse("items for something that is not a list")

    def add_members(self, target: Any, items: list[Any]) -> None:
        if type(target) is not set:
            self.refuse("members for something that is not a set")
        target.update(map(self.keys.checked, items))

    def set_items(self, target: Any, items: list[Any]) -> None:
        pairs = zip(items[::2], items[1::2], strict=True)
        if type(target) is Call:
            target.pairs = target.pairs or []
            target.pairs.extend(pairs)
        elif type(target) is dict:
            for key, value in pairs:
                target[self.keys.checked(key)] = value
        else:
            self.refuse("entries for something that is not a dictionary")

    # globals and calls

    def applied(self, items: list[Any]) -> Call:
        function, *args = items
        return Call(function, tuple(args))

    def named(self, pair: str) -> Global:
        module, _, name = pair.partition(" ")
        return self.mention(module, name)

    def mention(self, module: object, name: object) -> Global:
        if type(module) is not str or type(name) is not str:
            raise TypeError("a global's name is not a string")
        mentioned = Global(_PYTHON_2.get(module, module), name)
        self.globals.append(mentioned)
        return mentioned

    def give_state(self, target: Any, items: list[Any]) -> None:
        if type(target) is not Call or target.has_state:
            self.refuse("state for something that it did not just make")
        (target.state,), target.has_state = items, True


_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg", "exceptions": "builtins"}
"""What protocols 0 to 2 write for modules that Python 3 renamed."""

_LITERALS = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BYTEARRAY8"),
)
_REFUSED = dict.fromkeys(("EXT1", "EXT2", "EXT4"), "an extension code")
_REFUSED |= dict.fromkeys(("PERSID", "BINPERSID"), "a persistent id")
_REFUSED |= dict.fromkeys(("NEXT_BUFFER", "READONLY_BUFFER"), "an out-of-band buffer")


def class_of_instance(record: Any) -> Global | None:
    """Return the class of which ``record`` asks for an instance that gets its state afterwards."""
    if type(record) is not Call:
        return None
    cls = record.function
    if not record.makes_instance:
        args = record.args
        if not _is_copyreg(cls) or type(args) is not tuple or not args:
            return None
        if cls.name == "_reconstructor" and (
            len(args) != 3 or not is_named(args[1], _PLAIN_OBJECT)
        ):
            return None
        cls = args[0]
    return cls if type(cls) is Global else None


def is_named(record: Any, name: str) -> bool:
    """Whether ``record`` refers to a global by a full name."""
    return type(record) is Global and str(record) == name


def _is_copyreg(function: Any) -> bool:
    return type(function) is Global and function.module == "copyreg"


def children(record: Any) -> Iterable[Any]:
    """Return what a record or container is made of."""
    if type(record) is Call:
        parts = (record.function, record.args, record.kwargs, record.state)
        return (*parts, record.items, record.pairs, record.setters)
    if type(record) is dict:
        return (*record.keys(), *record.values())
    return () if type(record) is Global else record


def walk(root: Any, into: Callable[[Any], Iterable[Any]] = children) -> Iterator[Any]:
    """Yield every record and container below ``root``, each once, without recursion."""
    pending, seen = [root], set()
    while pending:
        value = pending.pop()
        if type(value) in _BRANCHES and id(value) not in seen:
            seen.add(id(value))
            yield value
            pending += into(value)


_PLAIN_OBJECT = "builtins.object"
_BRANCHES = (Call, Global, dict, list, tuple, set, frozenset)
