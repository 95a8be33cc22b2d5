"""What pages take from the code when they are built, so that it is as the code is.

A page has a comment ``<!-- generated: NAME -->`` where the text of the function NAME belongs. And a
line that is a link with ``<!-- included -->`` after it stands for the page that it leads to, so
that GitHub, where nothing is built, has a link there.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

LOOPS = ("scan", "for_loop", "while_loop", "map", "reduce", "filter")
PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
INCLUDED = re.compile(r"^\[[^\]]+\]\(([^)]+)\) <!-- included -->$", re.MULTILINE)


def filled(text: str, folder: Path) -> str:
    """Return the text of a page in ``folder`` with what is generated and included in its place."""
    text = INCLUDED.sub(lambda found: (folder / found[1]).read_text(encoding="utf-8"), text)
    return PLACE.sub(lambda found: GENERATED[found[1]](), text)


def commands() -> str:
    """Return each command with its arguments, options and defaults."""
    import typer

    from scanopt_cli.cli.app import app

    group: Any = typer.main.get_command(app)
    parts = []
    for name, command in group.commands.items():
        summary, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
        arguments = [p.metavar for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["scanopt", name, "[OPTIONS]", *arguments])
        parts += [f"## {name}", f"```text\n{usage}\n```", _text(summary)]
        parts += [_text(rest)] if rest else []
        kinds = get_type_hints(command.callback)
        rows = [_row(param, kinds[param.name]) for param in command.params if param.name in kinds]
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _row(param: Any, kind: Any) -> str:
    is_argument = param.param_type_name == "argument"
    shown = (
        [param.metavar] if is_argument else sorted([*param.opts, *param.secondary_opts], key=len)
    )
    text, default = _text(param.help or ""), param.default
    if isinstance(kind, type) and issubclass(kind, Enum):
        text += f" One of {', '.join(f'`{choice.value}`' for choice in kind)}."
        default = getattr(default, "value", default)
    elif not is_argument and not param.is_flag:
        shown[-1] += f" {param.metavar or _kind_name(kind)}"
    if isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != "":
        text += f" By default `{default}`."
    if param.required and not is_argument:
        text += " Required."
    names = ", ".join(f"`{name}`" for name in shown).replace("|", "\\|")
    return f"| {names} | {text} |"


def _kind_name(kind: Any) -> str:
    """Return the name of a type for people, of an optional one that which it is if it is given."""
    found = next((each for each in get_args(kind) if each is not type(None)), kind)
    return str(getattr(found, "__name__", found)).upper()


def _text(text: str) -> str:
    """Return a text of the command line as Markdown, in which a table's cell may hold it."""
    # Rich has a backslash before brackets that are no style.
    parts = re.split(r"(`[^`]*`)", " ".join(text.replace("\\[", "[").split()))
    return "".join(
        part.replace("|", "\\|") if part.startswith("`") else _escaped(part) for part in parts
    )


def _escaped(text: str) -> str:
    return re.sub(r"(--[\w-]+)", r"`\1`", re.sub(r"([*_<>|\[\]])", r"\\\1", text))


def presets() -> str:
    """Return which passes each preset runs, in their order."""
    from scanopt_cli.pipeline.grammar import PRESETS
    from scanopt_cli.pipeline.registry import registry

    rows = []
    for preset, text in PRESETS.items():
        # A comma in braces parts the options of one pass.
        items = [item for item in re.split(r",(?![^{]*\})", text) if item]
        links = [f"[`{item}`](#{re.split('{', item)[0]})" for item in items]
        rows.append(f"`{preset}`\n: {', '.join(links) or 'no pass'}\n")
    named = {re.split("{", item)[0] for text in PRESETS.values() for item in text.split(",")}
    rest = [f"[`{name}`](#{name})" for name in registry() if name not in named]
    return "\n".join([*rows, f"in none of them\n: {', '.join(rest)}"])


def passes() -> str:
    """Return the manual of each pass, with its options."""
    from scanopt_cli.pipeline.manual import manuals

    parts = []
    for manual in manuals():
        options = ", ".join(f"`{o.name}={o.default}`" for o in manual.options)
        # In Markdown, what is indented is code without a second colon before it.
        text = re.sub("::$", ":", manual.text, flags=re.MULTILINE)
        parts += [f"### {manual.name}", *([f"Options: {options}"] if options else []), text]
    return "\n\n".join(parts)


def remarks() -> str:
    """Return the codes of remarks with their texts, by pass."""
    from scanopt_cli.remarks import Code
    from scanopt_cli.reports.remark_text import TEXTS

    parts: list[str] = []
    for line in inspect.getsource(Code).splitlines():
        if owner := re.fullmatch(r" +# (.+)", line):
            parts.append(f"\n### {owner[1]}\n\n| code | text |\n|---|---|")
        elif name := re.match(r"    ([A-Z_]+) = ", line):
            code = Code[name[1]]
            parts.append(f"| `{code}` | {_text(TEXTS[code])} |")
    return "\n".join(parts)


def reasons() -> str:
    """Return the reasons of missed rewrites, with what a user can do."""
    from scanopt_cli.reports.remark_text import HINTS, REASONS

    rows = [
        f"| `{why}` | {_text(text)} | {_text(HINTS.get(why, ''))} |"
        for why, text in sorted(REASONS.items())
    ]
    return "\n".join(["| code | why | what to do |", "|---|---|---|", *rows])


def python() -> str:
    """Return the directives for all public names: functions, then errors, then results."""
    import scanopt_cli as so

    found = {name: getattr(so, name) for name in so.__all__ if name != "loop"}
    functions = [name for name, value in found.items() if not isinstance(value, type)]
    errors = [name for name, value in found.items() if name not in functions and _is_error(value)]
    classes = [name for name in found if name not in functions and name not in errors]
    parts = ["## Functions", *(_directive("function", f"scanopt_cli.{n}") for n in functions)]
    parts += ["## Loops", *(_directive("function", f"scanopt_cli.loop.{n}") for n in LOOPS)]
    parts += ["## Results and options"]
    parts += [_directive("class", f"scanopt_cli.{name}") for name in classes]
    parts += ["## Errors", *(_directive("exception", f"scanopt_cli.{name}") for name in errors)]
    return "\n\n".join(parts)


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _directive(kind: str, name: str, *options: str) -> str:
    flags = "".join(f"\n   :{option}:" for option in options)
    return f"```{{eval-rst}}\n.. auto{kind}:: {name}{flags}\n```"


def topics() -> str:
    """Return the texts of ``scanopt explain``, if this version has them."""
    import scanopt_cli

    folder = Path(scanopt_cli.__file__).parent / "explain" / "topics"
    texts = {path.stem: path.read_text(encoding="utf-8").strip() for path in folder.glob("*.md")}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in texts.items()}

    def linked(found: re.Match[str]) -> str:
        """Return a line of other topics, each a link to its section."""
        names = [name.strip() for name in found[1].split(",")]
        links = [f"[{titles[n]}](#{_anchor(titles[n])})" if n in titles else n for n in names]
        return f"See also: {', '.join(links)}."

    # Their titles become sections of the page.
    return "\n\n".join(
        re.sub(
            r"^See also: ([^.]*)\.$",
            linked,
            re.sub("^#", "##", texts[name], flags=re.MULTILINE),
            flags=re.MULTILINE,
        )
        for name in sorted(texts, key=lambda name: titles[name].lower())
    )


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def other_tables() -> str:
    """Return the tables of figures that no page includes, each as a section."""
    folder = Path(__file__).parents[1] / "figures"
    included = "".join(page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    return "\n\n".join(
        f"## {path.stem.replace('_', ' ').capitalize()}\n\n{path.read_text(encoding='utf-8')}"
        for path in sorted((folder / "tables").glob("*.md"))
        if f"tables/{path.name}" not in included
    )


GENERATED: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (commands, presets, passes, remarks, reasons, python, topics, other_tables)
}


def setup(app: Any) -> dict[str, Any]:
    """Fill pages as they are read."""

    def fill(app: Any, name: str, source: list[str]) -> None:
        page = Path(app.env.doc2path(name))
        for found in INCLUDED.findall(source[0]):
            app.env.note_dependency(str((page.parent / found).resolve()), docname=name)
        source[0] = filled(source[0], page.parent)

    app.connect("source-read", fill)
    return {"parallel_read_safe": True}
