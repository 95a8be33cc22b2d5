"""The contract of a rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import EllipsisType
from typing import ClassVar

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.errors import PassError
from scanopt_cli.ir.slots import Slot
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.presentation import Presented, html_of
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.finding_costs import memory
from scanopt_cli.text import enumerated


class Severity(StrEnum):
    """How bad a finding is: values are wrong, or likely to be, or time and memory are wasted."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Fix:
    """The passes that mend a finding, and whether all values stay as they are."""

    passes: str
    is_safe: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The names of the passes, without options; none if there is no such pass."""
        try:
            return frozenset(item.name for item in parse(self.passes))
        except PassError:  # of a package that adds a rule, and not the pass
            return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Finding(Presented):
    """What a rule found.

    Attributes
    ----------
    code, name, severity
        Those of the rule.
    loop
        The name of the loop after those of the loops and graphs around it, joined by ``/``;
        ``graph`` for what is in no loop.
    place
        Where the loop was written, ``model.py:41 in step``, if that is known.
    slots
        The names of the slots that it is about.
    text
        What is so, and why it matters, in one sentence without a stop.
    cost
        What it takes each call, as ``8*n+8 bytes``; ``None`` if that is not known.
    fix
        What mends it, if a pass does.
    key
        What identifies it in a baseline: equal as long as the loop computes the same, whatever it
        is called and wherever it stands.
    """

    code: str
    name: str
    severity: Severity
    loop: str
    place: str | None = None
    slots: tuple[str, ...] = ()
    text: str
    cost: str | None = None
    fix: Fix | None = None
    key: str

    @property
    def is_mended_safely(self) -> bool:
        """Whether a pass mends it that keeps all values."""
        return self.fix is not None and self.fix.is_safe

    @property
    def is_mended_unsafely(self) -> bool:
        """Whether a pass mends it that may change values."""
        return self.fix is not None and not self.fix.is_safe


class Findings(tuple[Finding, ...]):
    """Findings, which a notebook shows as a list."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html_of(self)


class Rule(ABC):
    """What may be wrong with a loop, or wasteful. The docstring is the manual.

    It says what is so, why it matters, and gives an example before and after.
    """

    code: ClassVar[str]
    """One letter, for the kind, and three digits."""
    name: ClassVar[str]
    severity: ClassVar[Severity]
    fix: ClassVar[Fix | None] = None
    is_default: ClassVar[bool] = True
    """Whether it is looked for unless codes are selected; not what only some users care for."""

    @abstractmethod
    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield what is provably so; nothing that PyTensor does away with anyway."""

    def suspects(self, context: CheckContext) -> Iterator[Finding]:  # noqa: ARG002
        """Yield what may be so, and is not proved. `check` tells it with ``-v`` alone."""
        yield from ()

    def at(
        self,
        context: CheckContext,
        loop: NamedLoop | None,
        text: str,
        *slots: Slot,
        others: Iterable[NamedLoop] = (),
        cost: str | None = None,
        fix: Fix | EllipsisType | None = ...,
    ) -> Finding:
        """Return a finding about a loop, or about the graph; the fix is the rule's by default.

        ``others`` are loops that it is about as well: it is the same finding whichever comes first.
        """
        digests = sorted({context.digest(each) for each in (loop, *others)})
        names = () if loop is None else tuple(loop.names[slot] for slot in slots)
        places = () if loop is None else sorted(context.place(loop, slot) for slot in slots)
        return Finding(
            code=self.code,
            name=self.name,
            severity=self.severity,
            loop="graph" if loop is None else loop.title,
            place=None if loop is None else loop.place,
            slots=names,
            text=text,
            cost=cost,
            fix=self.fix if isinstance(fix, EllipsisType) else fix,
            key=":".join((self.code, *digests, *map(str, places))),
        )


class PassRule(Rule):
    """A rule that finds what its fix would do.

    So what it finds is proved by the preconditions of the passes, and is gone once they ran.
    """

    fix: ClassVar[Fix]
    codes: ClassVar[frozenset[str]]
    """The codes of the remarks that are findings."""
    costs_buffers: ClassVar[bool] = True
    """Whether the buffers of the slots are what it costs."""

    @abstractmethod
    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding, of what the passes would do to one loop."""

    def proved(
        self,
        loop: NamedLoop,  # noqa: ARG002
        remarks: Sequence[Remark],
    ) -> Sequence[Remark]:
        """Return those of the remarks on a loop that are findings; all of them by default."""
        return remarks

    def doubt(self, remark: Remark) -> str | None:  # noqa: ARG002
        """Return what may be so, of a rewrite that the passes missed for lack of a proof.

        ``None`` if they missed it for another reason.
        """
        return None

    def suspects(self, context: CheckContext) -> Iterator[Finding]:
        """Yield what the passes would do, were a precondition proved."""
        told = set()
        for remark in context.remarks(self.fix.passes):
            loop = context.loop(remark.scan)
            is_missed = remark.kind is RemarkKind.MISSED and loop is not None
            text = self.doubt(remark) if is_missed else None
            if loop is None or text is None or (loop.title, text) in told:
                continue
            told.add((loop.title, text))
            yield self.at(context, loop, text, *loop.slots_named(remark.slots), fix=None)

    def cost(self, loop: NamedLoop, slots: Sequence[Slot]) -> str | None:
        """Return what the slots of a finding cost."""
        return memory(loop, slots) if self.costs_buffers else None

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop to which the passes would do something."""
        by_loop: dict[str, list[Remark]] = {}
        for remark in context.remarks(self.fix.passes):
            if remark.kind is RemarkKind.PASSED and remark.code in self.codes:
                by_loop.setdefault(remark.scan, []).append(remark)
        for title, remarks in by_loop.items():
            loop = context.loop(title)
            if loop is None:
                continue  # made by a pass of another
            remarks = list(self.proved(loop, remarks))
            if not remarks:
                continue
            slots = loop.slots_named({name for remark in remarks for name in remark.slots})
            cost = self.cost(loop, slots)
            others = [
                other
                for remark in remarks
                for name in listed(remark.details.get("others"))
                if (other := context.loop("/".join((*loop.path[:-1], name)))) is not None
            ]
            yield self.at(context, loop, self.text(remarks), *slots, others=others, cost=cost)


def listed(value: object) -> tuple[str, ...]:
    """Return a detail of a remark as texts."""
    return () if value is None else value if isinstance(value, tuple) else (str(value),)


def named(remarks: Iterable[Remark], *, with_kinds: bool = False) -> str:
    """Return the names of the slots that remarks are about: ``seq `a` and `b`, nit_sot `c```."""
    kinds: dict[str, list[str]] = {}
    for remark in remarks:
        kind = str(remark.details.get("kind", "")) if with_kinds else ""
        kinds.setdefault(kind, []).extend(f"`{name}`" for name in remark.slots)
    parts = []
    for kind, names in kinds.items():
        parts.append(f"{kind} {enumerated(list(dict.fromkeys(names)))}".lstrip())
    return ", ".join(parts)
