"""What a graph file refers to, without running any of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scanopt_cli.errors import LoadError, UnsafeFileError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.presentation import Presented
from scanopt_cli.serialization.data.container import document_of, payload_of
from scanopt_cli.serialization.data.contents import class_names, contents
from scanopt_cli.serialization.data.names import class_of
from scanopt_cli.serialization.files import DATA_MAGIC, Blob, read_blob, unpacked
from scanopt_cli.serialization.loading import interpret
from scanopt_cli.serialization.unpickler.allowlist import Allowlist, Refusal
from scanopt_cli.serialization.unpickler.dropping import left_out
from scanopt_cli.serialization.unpickler.graph_builder import build
from scanopt_cli.serialization.unpickler.pickle_handlers import HANDLED
from scanopt_cli.serialization.unpickler.records import Recording, read_records

_MOST_GLOBALS = 2_000
"""PyTensor, PyMC and pymc-extras together have fewer classes of Ops and types."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AuditedGlobal(Presented):
    """One thing that a file refers to by name.

    Attributes
    ----------
    module, qualname
        What the file calls it.
    mentions
        How often the file names it.
    allowed
        Whether the default loader accepts it. It also accepts what only occurs in parts of a graph
        that are left out unread, such as cached gradients; ``left_out`` is true then.
    reason, hint
        Why it is not allowed, and what would allow it; else ``None``.
    """

    module: str
    qualname: str
    mentions: int
    allowed: bool
    left_out: bool = False
    reason: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AuditReport(Presented):
    """Everything that a file refers to, sorted by name, and the verdict of the default loader.

    ``refusal`` is the loader's message if it refuses the file, for a global, the state of an op or
    a feature of pickle that no graph needs (then ``globals`` is empty); else ``None``. ``holds``
    says what else is in a file of data (``.scanopt``), one line each; it is empty for a pickle.
    """

    path: str
    globals: tuple[AuditedGlobal, ...]
    refusal: str | None
    holds: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        """Whether the default loader accepts the file."""
        return self.refusal is None


def audit(path: str | os.PathLike[str], allow_packages: Sequence[str] = ()) -> AuditReport:
    """List what the file ``path`` refers to and whether the default loader would accept it.

    Of a file of data, these are the classes of the format's own table that it names. A pickle is
    read into inert records. To resolve a class, the PyTensor module (or that of an
    admitted package) which defines it is imported; nothing else that the file names is. If all
    globals are allowed, the graph is made as the loader makes it, to see whether the state of its
    ops is honest, and whether it is a graph.

    Raises
    ------
    LoadError
        If the file cannot be read, or is neither data nor a pickle.
    """
    return audit_blob(read_blob(Path(path)), allow_packages)


@bounded_folding()
def audit_blob(file: Blob, allow_packages: Sequence[str] = ()) -> AuditReport:
    """Do the same with a file that is read."""
    where = file.name
    data = unpacked(file.data, where)
    if data.startswith(DATA_MAGIC):
        return _audit_data(data, where)
    try:
        recording = read_records(data, where)
    except UnsafeFileError as error:
        return AuditReport(path=where, globals=(), refusal=str(error))
    allowlist = Allowlist(HANDLED, allow_packages)
    dropped = left_out(recording.root)
    mentions = Counter((found.module, found.name) for found in recording.globals)
    used = {(found.module, found.name) for found in recording.globals if id(found) not in dropped}
    if len(mentions) > _MOST_GLOBALS:
        return AuditReport(
            path=where,
            globals=(),
            refusal=f"{where}: refers to more than {_MOST_GLOBALS:,} things by name",
        )
    globals_ = []
    for (module, name), count in sorted(mentions.items()):
        unread = (module, name) not in used
        verdict = None if unread else allowlist.resolve(module, name)
        refused = verdict if isinstance(verdict, Refusal) else None
        globals_.append(
            AuditedGlobal(
                module=module,
                qualname=name,
                mentions=count,
                allowed=refused is None,
                left_out=unread,
                reason=refused.reason if refused else None,
                hint=refused.hint if refused else None,
            )
        )
    return AuditReport(
        path=where,
        globals=tuple(globals_),
        refusal=_refusal(recording, where, allowlist, len(data)),
    )


def _audit_data(data: bytes, where: str) -> AuditReport:
    document, files = document_of(data, where)
    try:
        mentions, holds = Counter(class_names(document)), contents(document, files)
    except Exception:  # the loader says what is wrong
        mentions, holds = Counter(), ()
    globals_ = []
    for name, count in sorted(mentions.items())[:_MOST_GLOBALS]:
        try:
            cls, reason = class_of(name), None
        except ValueError as error:
            cls, reason = None, str(error)
        globals_.append(
            AuditedGlobal(
                module=cls.__module__ if cls else "",
                qualname=cls.__qualname__ if cls else name[:80],
                mentions=count,
                allowed=reason is None,
                reason=reason,
            )
        )
    try:
        interpret(payload_of(data, where), where)
    except LoadError as error:
        return AuditReport(path=where, globals=tuple(globals_), refusal=str(error), holds=holds)
    return AuditReport(path=where, globals=tuple(globals_), refusal=None, holds=holds)


def _refusal(recording: Recording, where: str, allowlist: Allowlist, size: int) -> str | None:
    try:
        interpret(build(recording, where, allowlist, size), where)
    except LoadError as error:
        return str(error)
    return None
