"""A range of steps, as a user writes it: ``5:10``, ``-3:``, ``7``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scanopt_cli.errors import ScanoptError

_RANGE = re.compile(r"(-?\d{1,18})?:(-?\d{1,18})?")
_HINT = "write a:b, a:, :b or one step, counted from 0; from the end if negative"


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps from ``start`` to before ``stop``, as of a slice; ``None`` for no bound."""

    start: int | None = None
    stop: int | None = None

    @classmethod
    def of(cls, steps: StepsLike, *, where: str) -> StepRange:
        """Return the range that a user means.

        Raises
        ------
        ScanoptError
            If it is no range, or holds no step; ``where`` names the option.
        """
        found = _parsed(steps)
        if found is None:
            raise ScanoptError(f"{steps!r} is no range of steps", where=where, hint=_HINT)
        start, stop = found.start or 0, found.stop
        if stop is not None and (start < 0) == (stop < 0) and stop <= start:
            raise ScanoptError(f"{found} holds no step", where=where, hint=_HINT)
        return found

    def __str__(self) -> str:
        """Return the range as ``a:b``."""
        ends = ("" if end is None else str(end) for end in (self.start, self.stop))
        return ":".join(ends)

    @property
    def is_all(self) -> bool:
        """Whether no step is left out."""
        return not self.start and self.stop is None

    @property
    def end(self) -> int | None:
        """The step before which the loop need not run on, if that is known beforehand."""
        is_counted = self.stop is not None and self.stop >= 0 and (self.start or 0) >= 0
        return self.stop if is_counted else None

    def may_hold(self, step: int) -> bool:
        """Whether a step may be in the range, while it is not known how many there are."""
        start, stop = self.start or 0, self.stop
        return step >= start and (stop is None or stop < 0 or step < stop)

    def within(self, count: int) -> range:
        """Return the steps of a loop of ``count`` steps that are in the range."""
        return range(count)[self.start : self.stop]


type StepsLike = StepRange | slice | range | int | str | None
"""The forms in which a range of steps is given."""


def _parsed(steps: StepsLike) -> StepRange | None:
    match steps:
        case None:
            return StepRange()
        case StepRange():
            return steps
        case slice(start=start, stop=stop, step=None | 1):
            return StepRange(start, stop)
        case range(start=start, stop=stop, step=1):
            return StepRange(start, stop)
        case bool():
            return None
        case int():
            return StepRange(steps, None if steps == -1 else steps + 1)
        case str() if re.fullmatch(r"-?\d{1,18}", steps.strip()):
            return _parsed(int(steps))
        case str() if (found := _RANGE.fullmatch(steps.strip())) is not None:
            ends = (None if end is None else int(end) for end in found.groups())
            return StepRange(*ends)
    return None
