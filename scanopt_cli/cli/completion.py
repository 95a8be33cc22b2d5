"""What a shell completes: names of passes, codes of rules, modes, topics.

A shell waits for these, so nothing here imports PyTensor. A value that nothing here completes, such
as the name of a file, is left to the shell.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points

_COMPILING = ("default", "vm", "cvm", "numba", "jax")
_PLAIN = "plain"


def pass_names() -> list[str]:
    """Return the names of all passes, those that other packages say they add last."""
    from scanopt_cli.pipeline.names import BY_NAME, ENTRY_POINT_GROUP

    return [*BY_NAME, *_added(ENTRY_POINT_GROUP)]


def complete_pipeline(incomplete: str) -> list[str]:
    """Return the completions of the last name in an incomplete pipeline."""
    from scanopt_cli.pipeline.names import PRESETS

    return _last_of_several(incomplete, [*pass_names(), *PRESETS])


def complete_pass(incomplete: str) -> list[str]:
    """Return the completions of the name of one pass, or of a preset."""
    from scanopt_cli.pipeline.names import PRESETS

    return _beginning(incomplete, [*pass_names(), *PRESETS])


def complete_rule(incomplete: str) -> list[str]:
    """Return the completions of the code of one rule, or of its name."""
    from scanopt_cli.rules.rule_names import NAMES

    return _beginning(incomplete, [*NAMES, *NAMES.values()])


def complete_codes(incomplete: str) -> list[str]:
    """Return the completions of the last code in a list with commas."""
    from scanopt_cli.rules.rule_names import NAMES

    return _last_of_several(incomplete, NAMES)


def complete_mode(incomplete: str) -> list[str]:
    """Return the completions of the name of a mode, or of that which compiles nothing."""
    return _beginning(incomplete, [*_COMPILING, _PLAIN])


def complete_compiling_mode(incomplete: str) -> list[str]:
    """Return the completions of the name of a mode that compiles."""
    return _beginning(incomplete, _COMPILING)


def complete_topic(incomplete: str) -> list[str]:
    """Return the completions of what can be explained: a topic, as one word, a pass or a rule."""
    from scanopt_cli.explain.topics import topics
    from scanopt_cli.rules.rule_names import NAMES

    return _beginning(incomplete, [*(topic.word for topic in topics()), *pass_names(), *NAMES])


def _added(group: str) -> list[str]:
    return [point.name for point in entry_points(group=group)]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _last_of_several(incomplete: str, names: Iterable[str]) -> list[str]:
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}" for name in _beginning(last, names)]
