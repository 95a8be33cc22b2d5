"""The safe loader: real graphs from the inert records of a pickle.

Everything is made by constructors of PyTensor's own classes (and of packages the user admits) from
parts that were checked before. No function that a file names is called, no state that a file gives
is set on anything, and what is not understood is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.errors import LoadError, brief
from scanopt_cli.serialization.unpickler.allowlist import Allowlist, Refusal
from scanopt_cli.serialization.unpickler.bounds import BODY_NODE
from scanopt_cli.serialization.unpickler.builder import CONTAINERS, Builder
from scanopt_cli.serialization.unpickler.constructors import StateError
from scanopt_cli.serialization.unpickler.dropping import CACHES, OPAQUE, left_out
from scanopt_cli.serialization.unpickler.nodes import make_nodes
from scanopt_cli.serialization.unpickler.op_state import rebuild, without_compilation
from scanopt_cli.serialization.unpickler.pickle_handlers import CALLS, HANDLED, INSTANCES
from scanopt_cli.serialization.unpickler.records import (
    Call,
    Global,
    Recording,
    class_of_instance,
    read_records,
)
from scanopt_cli.text import with_article


def read_safely(data: bytes, where: str, packages: Iterable[str] = ()) -> Any:
    """Return the object that the pickle ``data`` holds, made of checked parts only.

    Raises
    ------
    LoadError
        If ``data`` is not a whole pickle of graphs.
    UnsafeFileError
        If it refers to something that is not admitted, or gives an op a state that its own
        constructor would not give it.
    """
    return build(read_records(data, where), where, Allowlist(HANDLED, packages), len(data))


def build(recording: Recording, where: str, allowlist: Allowlist, size: int) -> Any:
    """Return what ``recording``, of ``size`` bytes, stands for; errors as in `read_safely`."""
    builder = GraphBuilder(where, allowlist, size)
    refused = [
        mentioned
        for mentioned in recording.globals
        if isinstance(allowlist.resolve(mentioned.module, mentioned.name), Refusal)
    ]
    unread = left_out(recording.root) if refused else frozenset()
    for mentioned in refused:
        if id(mentioned) not in unread:
            builder.resolve(mentioned)
    try:
        return builder.value(recording.root)
    except LoadError:
        raise
    except RecursionError:
        raise LoadError(
            "is nested too deeply",
            where=where,
            hint="save it with scanopt, which writes long chains flat; bodies nest a hundred deep",
        ) from None
    except Exception as error:
        raise LoadError(
            f"holds what no graph holds: {brief(error)}",
            where=where,
            hint="write the file again",
        ) from None


class GraphBuilder(Builder):
    """Makes what the records of one file stand for, the nodes and Ops of graphs among them."""

    def call(self, record: Call) -> Any:
        """Return what a call, or an instance, stands for; errors as of `read_safely`."""
        cls = class_of_instance(record)
        target = record.function if cls is None else cls
        if type(target) is not Global:
            raise self.refusal("calls something that it computes")
        thing = self.resolve(target)
        form = (CALLS if cls is None else INSTANCES).get((target.module, target.name))
        takes_state = cls is not None or target.name in (
            "dtype",
            "_reconstruct",
            "__bit_generator_ctor",
        )
        extras = record.kwargs or record.items or record.pairs or self._setters(record)
        if extras or (record.has_state and not takes_state):
            raise self.refusal(f"uses {target} in a way that no graph needs")
        try:
            self.uses.count(record.args, record.state)
            if form is not None:
                return form(self, record)
            if cls is not None and isinstance(thing, type):
                if issubclass(thing, Variable | Apply):
                    make_nodes(self, record)
                    return self.made[id(record)]
                if issubclass(thing, Op | Type):
                    return self._property_holder(thing, record)
        except StateError as error:
            raise self.refusal(f"holds a {target} with a state of its own: {error}") from None
        except (LoadError, RecursionError):
            raise
        except Exception as error:
            raise LoadError(
                f"{with_article(target.name[:80])} is not well-formed: {brief(error)}",
                where=self.where,
                hint="write the file again",
            ) from None
        raise self.refusal(f"uses {target} in a way that no graph needs")

    def _setters(self, record: Call) -> list[Call]:
        """Return the calls that may change what ``record`` makes.

        A setter is a call with ``record`` as first argument, whose result the pickle drops. Pickle
        also writes such a call for an object that contains itself; that is a call of a function in
        `CALLS`, which changes nothing.
        """
        return [
            call
            for call in record.setters or ()
            if type(call.function) is not Global
            or (call.function.module, call.function.name) not in CALLS
        ]

    def _property_holder(self, cls: type[Any], record: Call) -> Any:
        """Return the op or type of class ``cls`` that has the state in ``record``."""
        state = {}
        for name, part in self.state(record).items():
            if name in CACHES:
                continue
            inner = class_of_instance(part)
            opaque = inner is not None and (inner.module, inner.name) in OPAQUE
            held = state[name] = None if opaque else self.value(part)
            # Each Op and Type that has it goes through it, more than once.
            if isinstance(held, CONTAINERS):
                self.copied(held)
            if isinstance(held, FrozenFunctionGraph):
                self.uses.count_as(held, BODY_NODE * len(held.apply_nodes))
        return rebuild(cls, without_compilation(cls, state))
