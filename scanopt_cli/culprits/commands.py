"""Runs a command on a graph's file, within limits, and counts PyTensor's rewrites in it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from scanopt_cli.environment import GATE, of_program
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from scanopt_cli.verification.child_record import Rewritten
from scanopt_cli.verification.program_gate import rewritten, why_not, write_gate
from scanopt_cli.verification.spawning import Gate, end_process

PLACE = "{}"
"""What stands for the path of a graph in a command."""
OPTION = "--check"
# Exit codes of a shell for a command that it does not find or may not run.
_NO_COMMAND = (126, 127)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    code
        Its exit code, less than 0 for a signal; ``None`` if its time was up.
    rewritten
        How many of PyTensor's rewrites were applied in it, if they were counted.
    """

    code: int | None
    rewritten: Rewritten | None = None


def run_command(
    command: str, graph: Graph, *, timeout: float, memory: int, gate: Gate | None = None
) -> Ended:
    """Run a command on a graph, without a shell, and end what it has started.

    Parameters
    ----------
    command
        The command, with `PLACE` for the path of the graph.
    graph
        The graph, which is written to a file.
    timeout
        The seconds that it may take.
    memory
        Bytes of address space that each of its processes may use, where the system can bound them.
    gate
        If PyTensor's rewrites are to be counted in its processes, and limited.

    Raises
    ------
    ScanoptError
        If there is no such command, it has no place for the path, or a process of it that imports
        PyTensor cannot use scanopt, to count.
    """
    words = _words(command)
    with TemporaryDirectory(prefix="scanopt-check-") as name:
        directory = Path(name)
        path = directory / "graph.pkl"
        save(graph, path)
        environment: Mapping[str, str] = os.environ
        if gate is not None:
            write_gate(directory, gate)
            # Sets of names have the same order each time, unless the caller says otherwise.
            environment = {"PYTHONHASHSEED": "0"} | of_program(**{GATE: name})
        code = _ended(
            [word.replace(PLACE, str(path)) for word in words], environment, timeout, memory
        )
        if code in _NO_COMMAND:
            raise ScanoptError(f"{words[0]} cannot run (exit code {code})", where=OPTION)
        if gate is None:
            return Ended(code)
        failure = why_not(directory)
        if failure is not None:
            raise ScanoptError(f"PyTensor's rewrites cannot be counted: {failure}", where=OPTION)
        return Ended(code, rewritten(directory))


def _ended(
    words: list[str], environment: Mapping[str, str], timeout: float, memory: int
) -> int | None:
    """Run a command in a session of its own, and return its exit code, if it ends in time."""
    try:
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ScanoptError(f"{words[0]}: {error.strerror}", where=OPTION) from error
    try:
        _bound_memory(process.pid, memory)
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        end_process(process)
        if os.name == "posix":  # what it left running
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _bound_memory(process: int, memory: int) -> None:
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        hard = resource.prlimit(process, resource.RLIMIT_AS)[1]
        most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.prlimit(process, resource.RLIMIT_AS, (most, hard))


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ScanoptError(f"{command!r}: {error}", where=OPTION) from error
    if not any(PLACE in word for word in words):
        raise ScanoptError(
            f"{command!r} has no {PLACE} for the path of a graph",
            where=OPTION,
            hint=f"as in 'python check.py {PLACE}'",
        )
    return words
