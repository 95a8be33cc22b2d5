"""Run any Python program with capture switched on, without changing the program.

The program runs in a process of its own, with its own interpreter and arguments, and an environment
that starts capture when PyTensor is imported. Running the script inside scanopt's own process would
have to distinguish scripts, modules and test runs, and would mix its modules with scanopt's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from scanopt_cli.environment import CAPTURE, CAPTURE_ERRORS, CAPTURE_SLOW, of_program
from scanopt_cli.errors import ScanoptError
from scanopt_cli.integration.capture.directory import made

SIGNALLED = 128
"""What shells add to the number of the signal that ended a program."""


def run_captured(
    argv: Sequence[str],
    directory: str | os.PathLike[str],
    *,
    on_slow: float | None = None,
    on_error: bool = False,
) -> int:
    """Run the program ``argv`` and keep the graphs with a Scan that it compiles, as `capture` does.

    Standard streams are shared with the program. An interrupt from the terminal reaches it as it
    would without scanopt; a request to terminate is passed on.

    Returns
    -------
    int
        The program's exit code; 128 plus the signal's number if a signal ended it.

    Raises
    ------
    ScanoptError
        If there is no such program, or ``directory`` cannot be created.
    """
    if not argv:
        raise ScanoptError("no program to run", hint="scanopt capture -- python script.py")
    which = {
        CAPTURE_SLOW: "" if on_slow is None else repr(on_slow),
        CAPTURE_ERRORS: "yes" if on_error else "",
    }
    environment = of_program(**{CAPTURE: str(made(directory)), **which})
    try:
        process = subprocess.Popen(list(argv), env=environment)
    except OSError as error:
        raise ScanoptError(
            f"cannot be run: {error.strerror}",
            where=argv[0],
            hint="name the interpreter too: scanopt capture -- python script.py",
        ) from error
    with _signals_for(process):
        code = process.wait()
    return SIGNALLED - code if code < 0 else code


@contextmanager
def _signals_for(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass SIGINT and SIGTERM on to the program in place of obeying them.

    A terminal sends SIGINT to the program itself, so that one is not passed on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(number: int, _frame: Any) -> None:
        if number != signal.SIGINT or not os.isatty(0):
            process.send_signal(number)

    previous = {
        number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
