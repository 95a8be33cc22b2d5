"""The parts of a pickled graph that the safe loader ignores.

Pickled graphs carry more than the graph: gradients cached as closures, compiled functions, the
features and modes of past compilations. None of these is ever made, so they may refer to anything.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from pickle import PicklingError
from typing import Any

from pytensor.graph.op import Op

from scanopt_cli.serialization.unpickler.records import Global, children, class_of_instance, walk

CACHES = frozenset(
    {
        *("_fn", "_fn_wrapped", "_lop_op_cache", "_rop_op_cache", "_frozen_lop", "_frozen_rop"),
        *("_inner_shape_template", "_inner_shape_frozen", "_ufunc", "prepare_node_called"),
        *("nodenames", "inner_float16", "t_call", "t_fn"),
        *("written", "__doc__", "__module__", "__epydoc_asRoutine", "__oplist_tags"),
    }
)
"""Attributes of Ops that hold caches, mostly closures, or documentation; nothing of a graph."""

_EMPTY: dict[str, type[dict[Any, Any]] | None] = {
    "_lop_op_cache": dict,
    **dict.fromkeys(("_rop_op_cache", "_frozen_lop", "_frozen_rop", "_fn", "_fn_wrapped")),
}
"""What makes the caches that PyTensor expects to be there; the others are ``None`` at first."""

_new_instance: Any = vars(copyreg)["__newobj__"]
"""The function that pickle writes as one opcode, ``NEWOBJ``."""

_DECORATIONS = frozenset({"_fn_cache", "_repr_latex_", "str_repr"})
"""Attributes of variables that only concern their display or their evaluation."""

_BESIDE = CACHES | _DECORATIONS

OPAQUE = frozenset(
    {("pytensor.compile.mode", "Mode"), ("pytensor.graph.utils", "Scratchpad")},
)
"""Classes whose state is ignored."""

_KEPT = {
    ("pytensor.graph.fg", "FunctionGraph"): frozenset({"inputs", "outputs"}),
    ("pytensor.compile.maker", "FunctionMaker"): frozenset({"inputs", "outputs", "fgraph"}),
}
"""The only attributes of these classes that are loaded."""


def reduced_op(op: Op) -> Any:
    """Return what pickle writes for ``op`` with empty caches: an unpickler runs no constructor.

    Each Op gets empty caches of its own, since pickle keeps what is shared. `NotImplemented` if the
    class of ``op`` says itself how it is pickled.
    """
    state = None if _has_own_reduce(op) else op.__getstate__()
    if not isinstance(state, dict):
        return NotImplemented
    kept = {name: value for name, value in state.items() if name not in CACHES}
    empty = {name: make and make() for name, make in _EMPTY.items() if name in state}
    return _new_instance, (type(op),), kept | empty


def _has_own_reduce(op: Op) -> bool:
    """Whether the class of ``op`` says itself how it is pickled, and can.

    PyTensor's wrapped functions say that a name must lead to them, and refuse if none does; they
    are written by their state then.
    """
    cls = type(op)
    if cls.__reduce_ex__ is not object.__reduce_ex__:
        return True
    if cls.__reduce__ is object.__reduce__:
        return False
    try:
        op.__reduce__()
    except PicklingError:
        return False
    return True


def left_out(root: Any) -> frozenset[int]:
    """Return the ids of the globals below ``root`` to which only ignored parts refer.

    The ids are those of `Global` records, so they mean nothing once the records are gone.
    """
    dropped = [part for record in walk(root) for part in _parts(record, kept=False)]
    return _globals(walk(dropped)) - _globals(walk(root, lambda part: _parts(part, kept=True)))


def _globals(records: Iterable[Any]) -> frozenset[int]:
    return frozenset(id(record) for record in records if type(record) is Global)


def _parts(record: Any, *, kept: bool) -> Iterable[Any]:
    """Return the parts of ``record`` that are loaded, or else those that are ignored."""
    cls = class_of_instance(record)
    if cls is None:
        return children(record) if kept else ()
    key = (cls.module, cls.name)
    if key not in OPAQUE and type(record.state) is not dict:
        return children(record) if kept else ()
    asked = (record.function, record.args, record.kwargs)
    rest = (*asked, record.items, record.pairs, record.setters) if kept else ()
    if key in OPAQUE:
        return rest if kept else (record.state,)
    wanted = _KEPT.get(key)
    state = (
        part
        for name, part in record.state.items()
        if kept is (name in wanted if wanted else name not in _BESIDE)
    )
    return (*rest, *state)
