"""What a TracedLoop remembers of the Scan that it was made of, so that it can become it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from scanopt_cli.ir.slots import SlotKind

_KINDS = frozenset(SlotKind)


class FormerScan(NamedTuple):
    """The settings of a Scan, and the kinds that the slots of a TracedLoop had in it.

    A TracedLoop holds it as a plain tuple, and compares it: two loops that compute the same, but of
    different kinds of slots, become different Scans. How the Scan is compiled, its ``mode``, is
    apart, and nobody compares it, as in PyTensor.

    Attributes
    ----------
    kinds
        By slot but the index, in the order of `SlotView.slots`; ``None`` for one that the Scan did
        not have.
    profile, allow_gc, strict
        The settings of those names.
    """

    kinds: tuple[str | None, ...]
    profile: bool | str | None
    allow_gc: bool
    strict: bool

    @classmethod
    def of(cls, op: Any, kinds: Iterable[str | None]) -> FormerScan:
        """Return what to remember of ``op``, a Scan or a `FormerScan` itself."""
        plain = tuple(kind and SlotKind(kind).value for kind in kinds)  # as files may hold
        return cls(plain, op.profile, op.allow_gc, op.strict)

    @classmethod
    def checked(cls, found: Any, n_slots: int) -> FormerScan:
        """Return what a tuple, of a file perhaps, says of a loop of so many slots.

        Raises
        ------
        TypeError
            If it is no such tuple.
        """
        if type(found) is tuple and len(found) == len(cls._fields):
            kinds, profile, *switches = found
            if (
                type(kinds) is tuple
                and len(kinds) == n_slots
                and all(kind is None or kind in _KINDS for kind in kinds)
                and type(profile) in (bool, str, type(None))
                and all(type(switch) is bool for switch in switches)
            ):
                return cls(*found)
        raise TypeError("what a loop remembers of a Scan does not fit its slots")
