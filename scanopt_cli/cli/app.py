"""The command line: registers the commands, and prints every error as one line."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer

from scanopt_cli import __version__
from scanopt_cli.cli import audit as audit_command
from scanopt_cli.cli import bench as bench_command
from scanopt_cli.cli import bisect as bisect_command
from scanopt_cli.cli import cache as cache_command
from scanopt_cli.cli import capture as capture_command
from scanopt_cli.cli import check as check_command
from scanopt_cli.cli import convert as convert_command
from scanopt_cli.cli import diff as diff_command
from scanopt_cli.cli import explain as explain_command
from scanopt_cli.cli import grad as grad_command
from scanopt_cli.cli import hash as hash_command
from scanopt_cli.cli import inspect as inspect_command
from scanopt_cli.cli import list_rules
from scanopt_cli.cli import lock as lock_command
from scanopt_cli.cli import nan as nan_command
from scanopt_cli.cli import optimize as optimize_command
from scanopt_cli.cli import passes as passes_command
from scanopt_cli.cli import python as python_command
from scanopt_cli.cli import reduce as reduce_command
from scanopt_cli.cli import status as status_command
from scanopt_cli.cli import trace as trace_command
from scanopt_cli.cli import verify as verify_command
from scanopt_cli.cli import view as view_command
from scanopt_cli.cli.console import finish, set_up, tell
from scanopt_cli.cli.error_text import debugging, told
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.help import Command, Group
from scanopt_cli.cli.pages import remember_command
from scanopt_cli.environment import STRICT
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.older_objects import collect_rarely

app = typer.Typer(
    name="scanopt",
    cls=Group,
    help="Optimize, diff, differentiate and inspect the loops (Scans) of PyTensor graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 clean, 1 a finding, 2 scanopt could not do its work.",
)

_COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("optimize", optimize_command.optimize),
    ("diff", diff_command.diff),
    ("grad", grad_command.grad),
    ("hash", hash_command.hash_graphs),
    ("inspect", inspect_command.inspect),
    ("view", view_command.view),
    ("python", python_command.python),
    ("verify", verify_command.verify),
    ("bench", bench_command.bench),
    ("bisect", bisect_command.bisect),
    ("reduce", reduce_command.reduce),
    ("trace", trace_command.trace),
    ("nan", nan_command.nan),
    ("check", check_command.check),
    ("lock", lock_command.lock),
    ("status", status_command.status),
    ("rules", list_rules.rules),
    ("passes", passes_command.passes),
    ("explain", explain_command.explain),
    ("audit", audit_command.audit),
    ("convert", convert_command.convert),
    ("cache", cache_command.cache),
)
for _name, _command in _COMMANDS:
    app.command(_name, cls=Command)(_command)
app.command(
    "capture",
    cls=Command,
    # Everything after `--` belongs to the captured program, options included.
    context_settings={"allow_interspersed_args": False},
)(capture_command.capture)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"scanopt {__version__}\n")
        raise typer.Exit


# `run` reads --debug itself, at any position; it is declared here only for the help.
@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works anywhere.")
    ] = False,
) -> None: ...


_COMPLETING = "_SCANOPT_COMPLETE"
"""Is set by the scripts that `--show-completion` prints, when a shell asks what it may complete."""

_REWORDED = (
    (r"Invalid value for '([^']*)': ", r"\1: "),
    (r"Value error, ", ""),
    (r"Missing (?:argument|option) '([^']*)'", r"\1 is missing"),
    (r"No such command", "there is no command"),
    (r"No such option:?", "there is no option"),
    (r"Input should be a valid integer.*", "it is not a whole number"),
    (r"Input should be a valid number.*", "it is not a number"),
    (r"Input should be greater than or equal to", "it must be at least"),
    (r"Input should be less than or equal to", "it must be at most"),
)
"""Patterns for the wordings of Typer and pydantic, and scanopt's wordings for them."""


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    set_up()
    collect_rarely()
    code = run(sys.argv[1:])
    # If output cannot be written, the interpreter must not try again when it exits.
    with suppress(ScanoptError, OSError):
        finish()
        sys.exit(code)
    os._exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; print an error as one line on stderr."""
    arguments, debug = _take_debug(arguments)
    if debug:
        os.environ[STRICT] = "1"
    debugging.set(debug)
    remember_command(arguments)
    try:
        result = app(arguments, prog_name="scanopt", standalone_mode=False)
        finish()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as exited:
        if _COMPLETING in os.environ:
            # By its exit code a shell knows whether there is anything but files to complete.
            return int(exited.code or 0)
        # Typer exits this way if the pipe that its help goes to is closed.
        return ExitCode.CLEAN
    except Exception as error:
        if debug:
            traceback.print_exc()
        else:
            _print_error(error)
        return ExitCode.FAILED
    return int(result) if isinstance(result, int) else ExitCode.CLEAN


def _take_debug(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Take ``--debug`` out of scanopt's arguments; those after ``--`` are another program's."""
    own = list(arguments)
    rest: list[str] = []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut:]
    kept = [argument for argument in own if argument != "--debug"]
    return kept + rest, len(kept) != len(own)


def _print_error(error: Exception) -> None:
    # A usage error of Typer (of Click, in older versions of Typer). Its message is empty if the
    # help was printed instead.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        if not usage():
            return
        text = f"{_reworded(usage())}; see `{_command_path(error)} --help`"
    else:
        text = told(error)
    tell(f"error: {' '.join(text.split())}")


def _reworded(usage: str) -> str:
    """Return a usage error of Typer, or of pydantic in it, in scanopt's own wording."""
    for pattern, wording in _REWORDED:
        usage = re.sub(pattern, wording, usage)
    return usage.removesuffix(".")


def _command_path(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return str(getattr(context, "command_path", "scanopt"))
