"""The text of a pipeline: ``remove-unused,save-mem{prealloc=true}``.

Commas separate names; options follow a name in braces. The name of a preset stands for its passes.
`print_pipeline` is the inverse of `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from scanopt_cli.errors import PassError, brief
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.names import PRESETS as PRESETS
from scanopt_cli.pipeline.registry import plug_ins, registered, registry
from scanopt_cli.text import comma_separated

_FORMER_NAMES = {"constant-states": "hoist-states", "remove-unused-ends": "clean-ofg"}
"""Passes that another one has taken over, which pipelines may still name."""

_ITEM = re.compile(r"\s*(?P<name>[A-Za-z][\w-]*)\s*(?:\{(?P<options>[^{}]*)\})?\s*(?P<end>,|$)")
_WHERE = "pipeline"


def as_passes(passes: str | Sequence[Pass]) -> tuple[Pass, ...]:
    """Return ``passes``, which may be given as text.

    Raises
    ------
    PassError
        If the text is no pipeline, or an item of the sequence is no pass.
    """
    if isinstance(passes, str):
        return parse(passes)
    found = tuple(passes)
    for item in found:
        if not isinstance(item, Pass):
            raise PassError(
                f"{item!r} is no pass",
                where=_WHERE,
                hint='give passes, or one text: "merge-equal,save-mem"',
            )
    return found


def parse(text: str) -> tuple[Pass, ...]:
    """Return the passes that ``text`` names, in order.

    Raises
    ------
    PassError
        If the text is empty or malformed, or a name, an option or a value is unknown.
    """
    if not text.strip():
        raise PassError("is empty", where=_WHERE, hint="the preset none runs no pass")
    passes: list[Pass] = []
    position = 0
    while position < len(text.rstrip()):
        item = _ITEM.match(text, position)
        if item is None:
            raise PassError(
                f"cannot read the pipeline at {text[position : position + 30]!r}",
                where=_WHERE,
                hint="write names separated by commas, options in braces: "
                "remove-unused,save-mem{prealloc=true}",
            )
        passes.extend(_passes(item["name"], item["options"]))
        position = item.end()
        if item["end"] == "," and position >= len(text.rstrip()):
            raise PassError("the pipeline ends with a comma", where=_WHERE)
    return tuple(passes)


def print_pipeline(passes: Sequence[Pass]) -> str:
    """Return the text that `parse` reads as ``passes``, without options at their defaults."""
    return ",".join(_print_pass(item) for item in passes) or "none"


def described(pipeline: str) -> str:
    """Return the text of a pipeline, or of one that a preset stands for, the preset's name."""
    names = (name for name, text in PRESETS.items() if pipeline == (text or "none"))
    return next((f"preset {name}" for name in names), pipeline)


def pass_class(name: str) -> type[Pass]:
    """Return the pass called ``name``, or that which has taken over the one of that name.

    Raises
    ------
    PassError
        If there is none; the message names the nearest one.
    """
    found = registered(name) or registered(_FORMER_NAMES.get(name, name))
    if found is not None:
        return found
    if name in plug_ins().problems:
        raise PassError(plug_ins().problems[name], where=_WHERE)
    hint = "`scanopt passes` lists them"
    for nearest in get_close_matches(name, [*registry(), *PRESETS], n=1):
        hint = f"did you mean {'the preset ' if nearest in PRESETS else ''}{nearest}?"
    raise PassError(f"there is no pass or preset {name!r}", where=_WHERE, hint=hint)


def _passes(name: str, options: str | None) -> Sequence[Pass]:
    if name in PRESETS:
        if options is not None:
            raise PassError(f"the preset {name!r} takes no options", where=_WHERE)
        return parse(PRESETS[name]) if PRESETS[name] else ()
    cls = pass_class(name)
    values = _options(cls, options or "")
    try:
        return [cls(**values)]
    except PassError as error:
        raise PassError(f"{name}: {error.what}", where=_WHERE, hint=error.hint) from error
    except Exception as error:
        raise PassError(
            f"pass {name!r} refuses its options ({brief(error)})", where=_WHERE
        ) from error


def _options(cls: type[Pass], text: str) -> dict[str, Any]:
    known = {option.name: option for option in fields(cls)}
    values: dict[str, Any] = {}
    for part in comma_separated(text):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in known:
            listed = ", ".join(known) or "none"
            raise PassError(
                f"pass {cls.name!r} has no option {key!r}", where=_WHERE, hint=f"it has: {listed}"
            )
        if key in values:
            raise PassError(f"option {key!r} of {cls.name!r} is given twice", where=_WHERE)
        default = known[key].default
        values[key] = _value(cls, key, value if equals else "true", default)
    return values


def _value(cls: type[Pass], key: str, text: str, default: Any) -> Any:
    """Parse an option's value as the type of its default."""
    expected = "a value" if default is MISSING else type(default).__name__
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
    elif isinstance(default, int):
        if re.fullmatch(r"[+-]?\d+", text):
            return int(text)
    elif isinstance(default, float):
        with suppress(ValueError):
            return float(text)
    elif isinstance(default, str) and text:
        return text
    raise PassError(f"option {key!r} of {cls.name!r} wants {expected}, got {text!r}", where=_WHERE)


def _print_pass(item: Pass) -> str:
    values = [(option, getattr(item, option.name)) for option in fields(item)]
    text = ",".join(
        f"{option.name}={str(value).lower() if isinstance(value, bool) else value}"
        for option, value in values
        if value != option.default
    )
    return f"{item.name}{{{text}}}" if text else item.name
