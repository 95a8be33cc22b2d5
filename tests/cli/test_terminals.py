"""What a command writes to a terminal: text that fits, and commands that it understands.

Each command is run at a terminal of the system's, not in a pipe, since colours, progress and the
folding of lines are for terminals alone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scanopt_cli.cli.console import harmless_stderr, status
from support.command_line import scanopt
from support.terminal import Shown, Terminal, at, at_terminal

COMMANDS = {
    "optimize": ["optimize", "wasteful.pkl", "--time-passes"],
    "optimize several": ["optimize", "wasteful.pkl", "power.pkl", "--diff", "structural", "-v"],
    "optimize and verify": ["optimize", "wasteful.pkl", "--verify", "--print-changed"],
    "diff": ["diff", "wasteful.pkl", "clean.pkl"],
    "diff, counted": ["diff", "wasteful.pkl", "clean.pkl", "--stat", "--budget", "scans=0"],
    "grad": ["grad", "power.pkl", "--order", "2"],
    "hash": ["hash", "wasteful.pkl", "grad.pkl", "--inner"],
    "inspect": ["inspect", "wasteful.pkl"],
    "inspect several": ["inspect", "hessian.pkl"],
    "inspect one": ["inspect", "hessian.pkl", "--loop", "grad_of_square", "--depth", "1"],
    "no loop": ["inspect", "hessian.pkl", "--loop", "no_such_loop_as_this_one_with_a_long_name"],
    "verify": ["verify", "wasteful.pkl", "off.pkl", "--mode", "plain"],
    "trace": ["trace", "hessian.pkl"],
    "trace of one loop": ["trace", "hessian.pkl", "--loop", "square", "--inner"],
    "trace of two graphs": ["trace", "--between", "wasteful.pkl", "off.pkl"],
    "no slot": ["trace", "hessian.pkl", "--slot", "no_such_slot_as_this_one_with_a_long_name"],
    "nan": ["nan", "hessian.pkl"],
    "check": ["check", "wasteful.pkl", "grad.pkl", "clean.pkl"],
    "check, counted": ["check", "wasteful.pkl", "--statistics"],
    "lock": ["lock", "wasteful.pkl", "-o", "{kept}/no_such_directory_as_this_one/scanopt.lock"],
    "status": ["status", "--lock", "{kept}/no_such_directory_as_this_one_with_a_long_name"],
    "rules": ["rules"],
    "a rule": ["rules", "P001"],
    "passes": ["passes"],
    "a pass": ["passes", "save-mem"],
    "audit": ["audit", "wasteful.pkl"],
    "convert": ["convert", "wasteful.pkl", "{kept}.scanopt"],
    "cache": ["cache"],
    "capture": ["capture", "-o", "{kept}", "--", sys.executable, "-S", "-c", "pass"],
    "help": ["--help"],
    "help of a command": ["optimize", "--help"],
    "no file": ["inspect", f"{'no' * 20}/{'such' * 10}/{'file' * 10}.pkl"],
    "no option": ["optimize", "wasteful.pkl", "--no-such-option-as-this-one-with-a-long-name"],
}
TERMINALS = {
    "80 columns": (80, {}),
    "200 columns": (200, {}),
    "dumb": (80, {"TERM": "dumb"}),
    "narrow and dumb": (60, {"TERM": "dumb"}),
    "no colour": (80, {"NO_COLOR": "1"}),
}
pytestmark = pytest.mark.usefixtures("evaluated_here")


ESCAPED = r"\x1b[31mred"


def show(name: str, terminal: str, files: Path, kept: Path) -> Shown:
    columns, environment = TERMINALS[terminal]
    arguments = [word.format(kept=kept) for word in COMMANDS[name]]
    return at_terminal(*arguments, columns=columns, cwd=files, environment=environment)


# Typer's help takes each dumb terminal for one of 80 columns.
PLACES = [
    (name, terminal)
    for name in COMMANDS
    for terminal in TERMINALS
    if not (terminal == "narrow and dumb" and name.startswith("help"))
]


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize(("name", "terminal"), PLACES)
def test_a_terminal_gets_what_it_can_show(
    name: str, terminal: str, files: Path, tmp_path: Path
) -> None:
    columns, environment = TERMINALS[terminal]
    shown = show(name, terminal, files, tmp_path)
    assert "a bug in scanopt" not in shown.text
    assert "\\x1b" not in shown.text
    assert shown.widest <= columns
    if "NO_COLOR" in environment:
        assert not shown.colours
    if "TERM" in environment:
        assert not shown.controls


def test_a_wide_terminal_is_made_use_of(files: Path, tmp_path: Path) -> None:
    assert 80 < show("inspect", "200 columns", files, tmp_path).widest <= 200
    assert show("inspect", "80 columns", files, tmp_path).colours


def test_what_other_code_prints_stands_above_the_progress() -> None:
    """As text, whichever began first: what keeps texts harmless, or the line of progress."""
    terminal = Terminal(80)
    with at(terminal, {}):
        with harmless_stderr(), status("a.pkl", "first") as update:
            print("\x1b[31mred", file=sys.stderr)
            update("later")
        with status("b.pkl", "second"), harmless_stderr():
            print("half \x1b[31mred", end="", file=sys.stderr)
    shown = Shown(0, terminal.end())
    assert {line for line in shown.lines if "red" in line} == {ESCAPED, f"half {ESCAPED}"}
    told = {line[2:].removesuffix("0:00:00").rstrip() for line in shown.lines}  # a sign, the time
    assert {"a.pkl: first", "a.pkl: later", "b.pkl: second"} <= told
    # The line of progress is erased at the end, and the cursor is seen again.
    assert shown.controls[-3:] == ["\x1b[?25h", "\x1b[1A", "\x1b[2K"]


def test_there_is_no_progress_in_a_pipe_that_is_coloured(files: Path) -> None:
    done = scanopt("verify", "clean.pkl", "clean.pkl", cwd=files, FORCE_COLOR="1")
    assert "identical" in done.out
    assert done.err == ""
