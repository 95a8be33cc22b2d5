"""What a bisection finds: plain data, for any renderer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from scanopt_cli.ir.graph import Graph
from scanopt_cli.presentation import Presented
from scanopt_cli.remarks import Remark
from scanopt_cli.verification.result import VerificationTimes


class Maker(StrEnum):
    """Whose rewrite it is."""

    SCANOPT = "scanopt"
    PYTENSOR = "pytensor"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Culprit(Presented):
    """The first rewrite after which a graph has the property.

    Attributes
    ----------
    maker, name
        A pass of scanopt's, or of another package, or a rewriter of PyTensor's.
    number, of
        Which rewrite, counted from 1, of how many: of the pass in that run, or of all of PyTensor's
        in that compilation. ``None`` if only all rewrites of the pass together have the property;
        of 0 if it is not known of how many, since the pass never comes to its end.
    why
        What was seen of the graph after it.
    mode
        The mode that compiles the graph; ``None`` if it shows without compilation.
    failing
        The pass with its options, as a pipeline, if it does not come to its end.
    remarks
        What the pass says of the rewrite.
    within, position, place, node
        Of a rewriter of PyTensor's: what ran it, where that is in PyTensor's database, the file and
        line of the rewriter, and the node that it replaced.
    function
        Of a rewriter of PyTensor's in a command: which function was compiled, counted from 1, with
        its name and the line that asked for it.
    is_certain
        Whether the graph before it was seen not to have the property. If not, one of those before
        it may be to blame as well: the graphs between could not be evaluated, or were broken in
        another way.
    since, open
        The number of the first rewrite that may be to blame, 0 if the graph may have the property
        without any; and what was seen of one of the graphs between. It is ``number`` if the culprit
        is certain.
    among
        The passes that may be to blame, of which ``name`` is the last.
    before, after
        The graphs around it, or around all that may be to blame, if they are of one function;
        ``None`` if they cannot be had: a pass that crashes leaves none.
    """

    maker: Maker
    name: str
    number: int | None
    of: int
    why: str
    mode: str | None = None
    failing: str | None = None
    remarks: tuple[Remark, ...] = ()
    within: tuple[str, ...] = ()
    position: float | None = None
    place: str | None = None
    node: str | None = None
    function: str | None = None
    is_certain: bool = True
    since: int | None = None
    open: str = ""
    among: tuple[str, ...] = ()
    before: Graph | None = field(default=None, metadata={"as_json": False})
    after: Graph | None = field(default=None, metadata={"as_json": False})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Bisection(Presented):
    """Which rewrites give a graph a property.

    Attributes
    ----------
    property
        The property, in words.
    pipeline
        The passes that ran.
    culprits
        The rewrites: of a pass; and of PyTensor's, if the graph has the property only once it is
        compiled. None if the graph never had the property.
    probes
        How many graphs were looked at.
    seconds
        How long it took in all, by the clock.
    times
        Of that, how long graphs were compiled and called; ``None`` if a command did that, or no
        graph was evaluated. Equal bisections may have taken different times.
    """

    property: str
    pipeline: str
    culprits: tuple[Culprit, ...]
    probes: int
    seconds: float = field(default=0.0, compare=False)
    times: VerificationTimes | None = field(default=None, compare=False)
