"""Shells complete commands, options, passes, rules and topics, and leave files to themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import scanopt_cli.cli.completion as completion
from scanopt_cli.explain.topics import topics
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.pipeline.registry import builtin
from scanopt_cli.rules import rule_registry
from scanopt_cli.rules.rule_names import NAMES
from support.command_line import process

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program ``scanopt`` that is this one, to stand first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / "scanopt"
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scanopt_cli "$@"\n')
    file.chmod(0o755)
    return folder


def shell(name: str, script: str, program: Path, cwd: Path) -> str:
    """Run a script by a shell that reads no settings; return what it prints."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    flags = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    environment = {**os.environ, "PATH": f"{program}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), "PWD": str(cwd)}
    command = [found, *flags, "-c", script]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def bash_completes() -> bool:
    """Whether bash is one for which Typer has a script: macOS has an older one."""
    if (found := shutil.which("bash")) is None:
        return False
    command = [found, "--norc", "-c", "echo ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [int(number) for number in version] >= [4, 4]


def in_bash(line: str, program: Path, cwd: Path) -> set[str]:
    """What bash offers for a line that ends where <TAB> is pressed."""
    if not bash_completes():
        pytest.skip("there is no bash 4.4")
    script = f"""
        source <(_SCANOPT_COMPLETE=source_bash scanopt)
        [[ $(complete -p scanopt) == *"-o default"* ]] || exit 3
        COMP_LINE='{line}'
        read -ra COMP_WORDS <<< "$COMP_LINE"
        [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _scanopt_completion scanopt
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return set(shell("bash", script, program, cwd).split())


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("scanopt opt", {"optimize"}),
        ("scanopt optimize --pas", {"--passes"}),
        ("scanopt optimize x.pkl -p merge-eq", {"merge-equal"}),
        ("scanopt optimize x.pkl --passes merge-equal,save", {"merge-equal,save-mem"}),
        ("scanopt optimize x.pkl -p de", {"default"}),
        ("scanopt reduce x.pkl -p gra", {"grad"}),
        ("scanopt passes trim", {"trim-steps"}),
        ("scanopt check --select P01", {"P010"}),
        ("scanopt check --ignore C001,R", {"C001,R001", "C001,R002", "C001,R003"}),
        ("scanopt rules unused", {"unused-ends", "unused-slots"}),
        ("scanopt explain mit", {"mit_sot", "mit_mot", "mit-mot-to-sit-sot"}),
        ("scanopt explain R00", {"R001", "R002", "R003"}),
        ("scanopt explain untraced-", {"untraced-state"}),
        ("scanopt verify a.pkl b.pkl --mode nu", {"numba"}),
        ("scanopt bench a.pkl --mode pl", set()),
        ("scanopt grad a.pkl --strategy ta", {"taylor"}),
    ],
)
def test_bash(line: str, wanted: set[str], program: Path, tmp_path: Path) -> None:
    assert in_bash(line, program, tmp_path) == wanted


def test_bash_completes_files_itself(program: Path, tmp_path: Path) -> None:
    """Nothing is offered for the name of a file, and then bash offers files (`-o default`)."""
    (tmp_path / "model.pkl").touch()
    for line in ("scanopt inspect mod", "scanopt optimize x.pkl -o mod", "scanopt diff mod"):
        assert in_bash(line, program, tmp_path) == set()


def test_fish(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").touch()

    def offered(line: str) -> list[str]:
        script = f"""
            _SCANOPT_COMPLETE=source_fish scanopt | source
            complete --do-complete '{line}'
        """
        out = shell("fish", script, program, tmp_path)
        return [found.partition("\t")[0] for found in out.splitlines()]

    assert offered("scanopt opt") == ["optimize"]
    assert offered("scanopt passes trim") == ["trim-steps"]
    assert offered("scanopt explain mit_m") == ["mit_mot"]
    # fish asks by the exit code whether there is anything to offer but files.
    assert "model.pkl" in offered("scanopt inspect mod")
    assert "--loop" in offered("scanopt inspect --lo")


def test_zsh(program: Path, tmp_path: Path) -> None:
    """The script is read and registered; what it asks for is what zsh would show."""
    script = """
        autoload -Uz compinit && compinit -u -D
        eval "$(_SCANOPT_COMPLETE=source_zsh scanopt)"
        [[ $_comps[scanopt] == _scanopt_completion ]] || exit 3
        _arguments() { print -r -- "$@" }
        _files() { print files }
        ask() { words=(${(z)1}); CURRENT=$#words; _scanopt_completion }
        ask 'scanopt passes trim'
        ask 'scanopt inspect mod'
    """
    offered, files = shell("zsh", script, program, tmp_path).splitlines()
    assert "trim-steps" in offered
    assert files == "files"


@pytest.mark.parametrize("name", SHELLS)
def test_the_scripts_are_printed_and_asked_for_by_an_option(name: str) -> None:
    script = process("--help", _SCANOPT_COMPLETE=f"source_{name}")
    assert script.code == 0
    assert "_SCANOPT_COMPLETE=complete_" + name in script.out
    shown = process("--help").out
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_names_are_those_of_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completion.pass_names() == [cls.name for cls in builtin()]
    assert set(completion.complete_pipeline("")) == {*completion.pass_names(), *PRESETS}
    monkeypatch.setattr(rule_registry, "entry_points", lambda group: ())
    rule_registry.rules.cache_clear()
    assert {code: rule.name for code, rule in rule_registry.rules().items()} == NAMES
    words = [topic.word for topic in topics()]
    assert completion.complete_topic("") == [*words, *completion.pass_names(), *NAMES]
    point = EntryPoint("theirs", "package:Pass", "scanopt.passes")
    monkeypatch.setattr(completion, "entry_points", lambda group: (point,))
    assert completion.complete_pipeline("the") == ["theirs"]


def test_a_pass_is_completed_without_pytensor() -> None:
    code = (
        "import os, sys; os.environ |= {'_SCANOPT_COMPLETE': 'complete_bash',"
        " 'COMP_WORDS': 'scanopt optimize -p a,sa', 'COMP_CWORD': '3'};"
        "from scanopt_cli.cli.app import run; code = run([]);"
        "sys.exit(9 if 'pytensor' in sys.modules or 'numpy' in sys.modules else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["a,save-mem", "a,safe-branches"])
