"""Names from a file reach no terminal, no log of a CI service and no JSON reader as commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.tensor.rewriting.basic import unconditional_constant_folding

from scanopt_cli.cli.app import run
from scanopt_cli.ir.written import Written, mark
from scanopt_cli.serialization.saving import save
from scanopt_cli.text import markdown
from support.graph_building import scan
from support.tiers import deep

UGLY = [
    *(f"a{chr(code)}b" for code in [*range(32), *range(127, 160)]),
    *(f"::{command}::owned" for command in ("error", "debug", "add-mask", "set-env", "ERROR")),
    *("::stop-commands::x", "  ::error file=a,line=1::owned", "x\n::error::owned", "x\r::error::"),
    *("##[error]owned", "a##[group]b", "##vso[task.setvariable variable=a]b", "x ##VSO[task]b"),
    *("##teamcity[buildStatus status='SUCCESS']", "a\nafter: forged", "a\x85##[error]b"),
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x9b31m", "\x1b]8;;http://a\x07"),
    *("\u202eright to left", "\u2066isolated\u2069", "\u200bzero width", "\ufeffmark"),
    *("line\u2028end", "paragraph\u2029end", "next\x85line", "\ud800", "\udcff", "\udfff"),
    *("[red]markup[/red]", "[link=http://a]b[/link]", ":smile:", "[/]", "\\[x]"),
    *("<script>alert(1)</script>", "![x](http://a)", "[x](javascript:1)", "|a|", "```", "# a"),
    *("@everyone", "https://evil.example", "www.evil.example", "mailto:a@b.example"),
    *("%0A::error::owned", "%25", "{x}", "{0}", "%s", "$(id)", "`id`", "';--", '"', "\\"),
    *("", " ", "\t", "e\u0301", "\u05d0\u05d1", "\U0001f600", "x" * 900, "wide\uff21", "\\x1b"),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two graphs of loops with ugly names, of inputs, files and arguments; one computes more."""
    outputs, inputs = [], []
    for place, name in enumerate(UGLY):
        sequence = pt.dvector(name)
        inputs.append(sequence)
        if place % 10 == 0:
            start = sequence[0]
            start.name = name
            ys = scan(
                lambda s, y: y * s,
                sequences=[sequence],
                outputs_info=[start],
                name=_loop_name(name),
            )
            mark(ys.owner.inputs[0].owner.op, Written(name, 1, name, (name, name)))
            outputs.append(ys[-1])
        else:
            outputs.append(sequence.sum())
    outputs[0].name = UGLY[0]
    folder = tmp_path_factory.mktemp("ugly")
    paths = folder / "a.pkl", folder / "b.pkl"
    for path, results in zip(paths, (outputs, [output + 1 for output in outputs]), strict=True):
        save((inputs, [sum(results)]), path)
    return paths


def _loop_name(name: str) -> str | None:
    """The name, if one of an Op may be so: the loader admits words with single colons."""
    return name if re.fullmatch(r"[\w :#\[\]().-]{1,60}", name) else None


def check(text: str, *, commands: bool = False) -> None:
    """Check that ``text`` is lines of plain characters, and says nothing to a CI service."""
    assert all(char.isprintable() for char in text.replace("\n", ""))
    for line in text.split("\n"):
        assert not re.search(r"##\w*\[", line), line
        assert not line.startswith("after: forged")
        if line.lstrip().startswith("::"):
            assert commands, line
            wanted = r"::(notice|warning|error) file=[^:,]*(,line=\d+)?,title=[^:,]*::"
            assert re.match(wanted, line), line


CASES = {
    "optimize": ["optimize", "A", "-p", "grad", "--verify", "--mode", "plain"],
    "optimize, structural": ["optimize", "A", "--diff", "structural", "--lines", "0"],
    "optimize, tree": ["optimize", "A", "--diff", "tree", "--lines", "0", "--print-changed"],
    "diff": ["diff", "A", "B"],
    "diff, stat": ["diff", "A", "B", "--stat"],
    "hash": ["hash", "A", "B", "--inner"],
    "inspect": ["inspect", "A"],
    "inspect, one": ["inspect", "A", "--loop", "1", "--depth", "2"],
    "verify": ["verify", "A", "B", "--mode", "plain"],
    "trace": ["trace", "A", "--inner"],
    "trace, two": ["trace", "--between", "A", "B"],
    "nan": ["nan", "A"],
    "grad": ["grad", "A", "--stage", "raw", "--no-check", "--wrt", UGLY[0], "--show", "#5"],
    "check": ["check", "A", "B"],
    "audit": ["audit", "A"],
}
_SLOW = ("optimize", "verify", "grad")


@pytest.mark.tiered(every=8)
@pytest.mark.parametrize(
    ("case", "form"),
    [
        *((case, "rich") for case in CASES),
        *((case, "json") for case in CASES if case not in _SLOW),
        *deep(*((case, "json") for case in _SLOW), *((case, "markdown") for case in CASES)),
        *((case, "github") for case in CASES if case.startswith(("diff", "check"))),
        ("check", "concise"),
        ("check", "sarif"),
    ],
)
@pytest.mark.usefixtures("evaluated_here")
def test_nothing_obeys_a_name(
    case: str, form: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"A": str(files[0]), "B": str(files[1])}
    code = run([*(paths.get(part, part) for part in CASES[case]), "--format", form])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    assert "transform" not in vars(unconditional_constant_folding), "PyTensor folds as before"
    check(shown.out, commands=form == "github")
    check(shown.err)
    if form == "json":
        assert shown.out.isascii()
        assert json.loads(shown.out)["command"] == case.split(",")[0]


@pytest.mark.parametrize(
    "words",
    [
        ["view", "A", "--code", "-o", "PAGE"],
        ["check", "A", "B", "--html", "PAGE"],
        *deep(["diff", "A", "B", "--html", "PAGE"], ["grad", "A", "--no-check", "--html", "PAGE"]),
    ],
)
def test_no_name_is_markup_in_a_page(
    words: list[str],
    files: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    places = {"A": str(files[0]), "B": str(files[1]), "PAGE": str(page)}
    assert run([places.get(word, word) for word in words]) in (0, 1)
    check(capsys.readouterr().err)
    text = page.read_text()
    body = text[text.index("<body>") : text.index('<script type="application')]
    check(re.sub(r"<pre>.*?</pre>", "", body, flags=re.DOTALL))
    assert "<script>alert" not in body
    assert words[0] != "view" or "&lt;script&gt;alert" in body
    assert text.count("<script") == 3


def test_no_name_is_code_in_a_script(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["python", str(files[0])]) == 0
    shown = capsys.readouterr()
    check(shown.out)
    check(shown.err)
    names: dict[str, Any] = {}
    exec(shown.out, names)
    assert [v.name for v in names["inputs"]] == UGLY


def test_ugly_paths_are_told_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in UGLY[::3]:
        if 0 < len(name) < 200 and not {"\0", "/"} & set(name):
            assert run(["inspect", str(tmp_path / name)]) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            check(error)


LINKS = [
    *("@everyone", "a@b.c", "https://e.f", "www.e.f", "_www.e.f", "_WWW.e.f", "x_www.e.f"),
    *("mailto:a@b.c", "xmpp:a@b.c", "#12", "a/b#12", "_#12", "GH-12", "gh-12", "_GH-12"),
    *("deadbee", "_deadbee", "1234567a", "DEADBEEF", "0123456789abcdef" * 4, "a/b@deadbee"),
]


@pytest.mark.parametrize("name", LINKS)
def test_markdown_mentions_nobody_and_has_no_links(name: str) -> None:
    shown = markdown(f"see {name} there")
    linked = r"@\w|://\w|www\.\w|mailto:|xmpp:|#\d(?!203;)|GH-\d|[\da-f]{7}"
    assert not re.search(linked, shown, re.IGNORECASE)
    plain = re.sub(r"\\(.)", r"\1", shown.replace("&#8203;", ""))
    assert plain == f"see {name} there"


def test_numbers_and_words_can_be_copied_from_markdown() -> None:
    for text in ("4.688247510145701", "1000000", "decade", "feedbacks", "1.5e-07", "x0123456z"):
        assert markdown(text) == text
