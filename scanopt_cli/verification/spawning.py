"""Start the child process that evaluates graphs, watch it, and read its record.

A child process keeps a crash, an endless loop or a memory blow-up of a foreign graph away from the
caller. It is a new interpreter, not a fork, and does not import the caller's main module. It finds
modules where the caller does, on the caller's ``sys.path``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Protocol

import cloudpickle
from pytensor.configdefaults import config
from pytensor.graph.op import Op

from scanopt_cli.environment import CAPTURE
from scanopt_cli.errors import VerificationError
from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.payload import encode
from scanopt_cli.serialization.unpickler.dropping import reduced_op
from scanopt_cli.verification.child_record import Doing, Done, Entry, Failed, Record, from_line
from scanopt_cli.verification.modes import WITHOUT_C

REQUEST = "request.pkl"
RECORD = "record.jsonl"
ARGUMENTS = "arguments.npz"
"""The arguments of the first run in which values differ, beside the graphs around a rewrite."""
_STDERR = "stderr.txt"
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from importlib import import_module; "
    "import_module(sys.argv[3]).main(sys.argv[2])"
)
_WORKER = "scanopt_cli.verification.worker"
# Seconds between two reads of the child's record.
_POLL_INTERVAL = 0.2
PATIENCE = 10
"""How many seconds the parent waits for each second of processor time that the child may use.

A child that computes on a busy machine takes no longer, one that sleeps uses no processor time.
"""
# Processor time is that of all threads. With one thread it is the same however many a machine has.
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class ChildRequest(Protocol):
    """What every request says: how long the child may take, and in which modes it compiles."""

    @property
    def timeout(self) -> float:
        """Seconds of processor time that the child may use."""
        ...

    @property
    def modes(self) -> tuple[str, ...]:
        """The names of the modes that compile a graph."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the child evaluates to verify a graph.

    Attributes
    ----------
    graphs
        The `tables` of the two graphs; their inputs correspond by position.
    names
        A name for each output, or ``None``.
    recorded
        Argument tuples of recorded calls, aligned with the inputs.
    contents
        Contents of shared variables, by input position.
    runs, seed
        How many runs are drawn, and from which seed.
    modes
        The names of the modes that compile the second graph.
    timeout
        Seconds of processor time that the child may use.
    rtol
        How far values may be apart, as a fraction of them; ``None`` for what rounding explains.
    gate
        If PyTensor's rewrites are to be counted. Then the second graph, compiled, must give the
        values that the first one gives as it is, whatever the mode makes of the first.
    """

    graphs: tuple[dict[str, Any], ...]
    names: tuple[str | None, ...]
    recorded: tuple[tuple[Any, ...], ...]
    contents: Mapping[int, Any]
    runs: int
    seed: int
    modes: tuple[str, ...]
    timeout: float
    rtol: float | None = None
    gate: Gate | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """How many of PyTensor's rewrites are applied, and where the graphs around the last go.

    ``most`` is ``None`` for all of them. Without a directory, the graphs are not kept. Those of the
    rewriter ``without`` are left out.
    """

    most: int | None = None
    directory: Path | None = None
    without: str | None = None


def tables(*graphs: Graph) -> tuple[dict[str, Any], ...]:
    """Return graphs, and nothing of what else is known of them, as the tables that files hold.

    Shared variables are plain inputs there, to which each run gives values.

    Frozen graphs would share nodes that PyTensor counts as equal, and it counts 0.0 and -0.0 as
    equal.
    """
    return tuple(
        encode(Graph(fgraph=graph.fgraph), keep_traces=False, cut_names=True) | {"values": {}}
        for graph in graphs
    )


def run_child(
    request: ChildRequest,
    progress: Callable[[str], None] | None = None,
    *,
    worker: str = _WORKER,
    doing: str = "evaluating",
    then: Callable[[Path], None] | None = None,
) -> Record:
    """Evaluate ``request`` in a child process, which has ended when this returns.

    Parameters
    ----------
    request
        What the child evaluates.
    progress
        Called with a description of what the child is doing.
    worker
        The module whose ``main`` the child runs, with the directory that has the request.
    doing
        What it is for, which `progress` says first.
    then
        Called with that directory when the child has ended, to read what it wrote beside its
        record.
    """
    with TemporaryDirectory(prefix="scanopt-verify-") as name:
        directory = Path(name)
        write_request(directory, request)

        def watch() -> None:
            if progress is not None:
                progress(f"{doing}: {_doing(Record(_written(directory / RECORD)))}")

        failure = run_module(
            worker,
            directory,
            timeout=request.timeout,
            environment=checking_environment(request.modes, directory),
            watch=watch if progress is not None else None,
        )
        if then is not None:
            then(directory)
        return _record(directory, failure)


def run_module(
    module: str,
    directory: Path,
    *,
    timeout: float,
    environment: Mapping[str, str],
    watch: Callable[[], None] | None = None,
) -> str | None:
    """Call ``main(directory)`` of a module in a child process, which has ended when this returns.

    Returns what went wrong with the process, if anything. ``watch`` is called now and then.
    """
    process = started(module, directory, environment)
    return _wait(process, timeout, watch)


def started(
    module: str, directory: Path, environment: Mapping[str, str], *, talks: bool = False
) -> subprocess.Popen[bytes]:
    """Start a child process that calls ``main(directory)`` of a module.

    If it ``talks``, its stdin and stdout are pipes of the caller's.
    """
    pipe = subprocess.PIPE if talks else subprocess.DEVNULL
    with (directory / _STDERR).open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), str(directory), module],
            stdin=pipe,
            stdout=pipe,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )


def write_request(directory: Path, request: object) -> None:
    """Write what a child process is to do into its directory.

    Raises
    ------
    VerificationError
        If an Op of a graph in it cannot be pickled.
    """
    try:
        with (directory / REQUEST).open("wb") as file:
            _RequestPickler(file).dump(request)
    except Exception as error:
        raise VerificationError(
            f"a graph cannot be sent to the process that evaluates it: {error}",
            hint="an op of it holds something that cannot be pickled",
        ) from error


class _RequestPickler(cloudpickle.Pickler):
    """Pickles Ops of any module, ``__main__`` included, without their caches."""

    def reducer_override(self, thing: Any) -> Any:
        reduced = reduced_op(thing) if isinstance(thing, Op) else NotImplemented
        return super().reducer_override(thing) if reduced is NotImplemented else reduced


def checking_environment(modes: Collection[str], directory: Path) -> dict[str, str]:
    """Return the environment of a child that checks what a graph computes.

    Its directory has the temporary files. Numba checks bounds there, and linear algebra has one
    thread.
    """
    # The keys of PyTensor's cache of compiled code do not cover all that the code depends on. So
    # the child has a cache of its own: the user's programs must not run code that was compiled from
    # a file with wrong types.
    environment = _environment(modes, directory, cache="scanopt-checked")
    return environment | _ONE_THREAD | {"NUMBA_BOUNDSCHECK": "1"}


def timing_environment(modes: Collection[str], directory: Path) -> dict[str, str]:
    """Return the environment of a child that measures what a graph costs as a user compiles it.

    What Numba compiles is compiled anew, and C comes from a cache that only such children use.
    Linear algebra has one thread, unless the user's environment says how many.
    """
    environment = _environment(modes, directory, "numba__cache=False", cache="scanopt-timed")
    return _ONE_THREAD | environment


def _environment(modes: Collection[str], directory: Path, *more: str, cache: str) -> dict[str, str]:
    """Return the caller's environment without capture, and without C if no mode needs it."""
    environment = {key: value for key, value in os.environ.items() if key != CAPTURE}
    flags = [environment.get("PYTENSOR_FLAGS", ""), "traceback__limit=0", *more]
    flags += ["cxx="] if WITHOUT_C.issuperset(modes) else []
    flags += [f"base_compiledir={Path(config.base_compiledir) / cache}"]
    # PyTensor does not delete the temporary files of the code that it generates for Numba.
    environment["TMPDIR"] = str(directory)
    environment["PYTENSOR_FLAGS"] = ",".join(filter(None, flags))
    return environment


def _wait(
    process: subprocess.Popen[bytes], timeout: float, watch: Callable[[], None] | None
) -> str | None:
    """Wait for the child to end, and return what went wrong with it, if anything.

    The system ends it after ``timeout`` seconds of processor time. A child that still runs after
    `PATIENCE` times as many seconds is killed together with its own children.
    """
    longest = PATIENCE * timeout
    end = monotonic() + longest
    try:
        while watch is not None and process.poll() is None and monotonic() < end:
            watch()
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(_POLL_INTERVAL, max(end - monotonic(), 0)))
        code = process.wait(max(end - monotonic(), 0))
    except subprocess.TimeoutExpired:
        return f"no answer within {longest:g} s"
    finally:
        end_process(process)
    return how_it_ended(code, timeout)


def how_it_ended(code: int, timeout: float) -> str | None:
    """Return what went wrong with a child that the system gave ``timeout`` seconds, if anything."""
    if is_end_of_time(code):
        return f"no answer within {timeout:g} s of processor time"
    if code < 0:
        return f"the process was ended by {signal_name(-code)}"
    return f"the process ended with exit code {code}" if code else None


def is_end_of_time(code: int) -> bool:
    """Whether a child ended since its processor time was up."""
    return code < 0 and -code == getattr(signal, "SIGPROF", None)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a child, if it still runs, together with its own children."""
    if process.poll() is None:
        if os.name == "posix":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _written(path: Path) -> list[Entry]:
    """Return what the child has written so far, without an incomplete last line."""
    entries: list[Entry] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            entries.append(from_line(line))
    return entries


def _doing(record: Record) -> str:
    return next((entry.what for entry in reversed(record.of(Doing))), "starting")


def _end_of(path: Path) -> str:
    """Return the last few thousand letters of a file, which may be long."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 4_096, 0))
        return file.read().decode(errors="replace")


def with_last_words(failure: str | None, doing: str, directory: Path) -> str:
    """Return why a child ended, at what, and the last line that it printed on stderr."""
    last_words = _end_of(directory / _STDERR).strip().splitlines()[-1:]
    why = f"{failure or 'the process ended early'} while {doing}"
    return why + "".join(f" ({line[:200]})" for line in last_words)


def _record(directory: Path, failure: str | None) -> Record:
    """Return what the child found, and why it ended early, if it did."""
    record = Record(_written(directory / RECORD))
    why = next((entry.why for entry in reversed(record.of(Failed))), None)
    if why is None and not record.of(Done):
        why = with_last_words(failure, _doing(record), directory)
    return replace(record, failure=why)
