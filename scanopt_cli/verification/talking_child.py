"""A child process that carries out one order after the other and answers each.

An order and its answer are a line of JSON each, on pipes that what a graph prints does not reach.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from queue import Empty, Queue
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from time import monotonic
from types import TracebackType
from typing import Any, Self

from scanopt_cli.errors import VerificationError
from scanopt_cli.verification.spawning import (
    PATIENCE,
    ChildRequest,
    end_process,
    how_it_ended,
    is_end_of_time,
    started,
    timing_environment,
    with_last_words,
    write_request,
)

ERROR = "error"
"""The key of an answer that says why an order was not carried out."""
OUT_OF_MEMORY = "out of memory"
"""Such a reason."""
_LONGEST = 300
# Seconds in which a child that is no longer needed ends, before it is killed.
_FAREWELL = 2


class Fault(StrEnum):
    """Why a child could not do what it was told."""

    TIME = "time"
    """It took more than the time that it had."""
    MEMORY = "memory"
    """It was refused memory."""
    OTHER = "other"


class ChildError(VerificationError):
    """A child could not do what it was told."""

    def __init__(self, why: str, fault: Fault, *, where: str | None = None) -> None:
        super().__init__(why, where=where)
        self.fault = fault


class TalkingChild:
    """A child process, from the caller's side. It ends with the block.

    Parameters
    ----------
    module
        Its ``main`` is run, with a directory that has the request; it calls
        `scanopt_cli.verification.answering.answer_orders`.
    request
        What it is to know, which says how much processor time it may use.
    subject
        Of what an error tells.
    """

    def __init__(self, module: str, request: ChildRequest, subject: str) -> None:
        self._subject = subject
        self._timeout = request.timeout
        self._answers: Queue[bytes] = Queue()
        self._end = monotonic() + PATIENCE * request.timeout
        self._files = TemporaryDirectory(prefix="scanopt-bench-")
        try:
            directory = Path(self._files.name)
            write_request(directory, request)
            environment = timing_environment(request.modes, directory)
            self._process = started(module, directory, environment, talks=True)
        except BaseException:
            self._files.cleanup()
            raise
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            if kind is None:
                # It ends when it hears nothing more.
                with suppress(OSError, TimeoutExpired):
                    pipe.close()
                    self._process.wait(_FAREWELL)
            end_process(self._process)
        finally:
            self._files.cleanup()

    def ask(self, order: str, doing: str, **details: Any) -> Mapping[str, Any]:
        """Return the answer to an order; ``doing`` tells what it is, should it fail.

        Raises
        ------
        ChildError
            If the child cannot do it, or ends.
        """
        line = json.dumps({"order": order, **details}).encode() + b"\n"
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(line)
            pipe.flush()
            answer = self._answers.get(timeout=max(self._end - monotonic(), 0))
        except OSError:
            answer = b""
        except Empty:
            end_process(self._process)
            why = f"no answer within {PATIENCE * self._timeout:g} s while {doing}"
            raise ChildError(why, Fault.TIME, where=self._subject) from None
        if not answer:
            code = self._process.wait()
            failure = how_it_ended(code, self._timeout)
            why = with_last_words(failure, doing, Path(self._files.name))
            fault = Fault.TIME if is_end_of_time(code) else Fault.OTHER
            raise ChildError(why, fault, where=self._subject)
        told = _read(answer)
        if ERROR in told:
            why = str(told[ERROR])
            fault = Fault.MEMORY if why == OUT_OF_MEMORY else Fault.OTHER
            raise ChildError(f"{why[:_LONGEST]} while {doing}", fault, where=self._subject)
        return told

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        for line in pipe:
            self._answers.put(line)
        self._answers.put(b"")


def _read(answer: bytes) -> dict[str, Any]:
    """Return an answer of a process that evaluates foreign graphs."""
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {ERROR: "an answer that cannot be read"}
