"""The text of a pipeline: read, printed, refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scanopt_cli.errors import PassError
from scanopt_cli.passes.of_scans.save_mem.save_mem import SaveMem
from scanopt_cli.passes.of_traced_loops.unroll_small.unroll_small import UnrollSmall
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import PRESETS, as_passes, described, parse, print_pipeline
from scanopt_cli.pipeline.registry import builtin, registered, registry

_OPTIONS = {SaveMem: st.booleans(), UnrollSmall: st.integers(1, 64)}
_PASSES = st.one_of(
    *(st.builds(cls, *([_OPTIONS[cls]] if cls in _OPTIONS else [])) for cls in builtin())
)


@given(st.lists(_PASSES, max_size=6))
def test_parse_and_print_round_trip(passes: list[Pass]) -> None:
    assert list(parse(print_pipeline(passes))) == passes


def test_spaces_options_and_presets() -> None:
    assert parse(" remove-unused , save-mem{ prealloc = false } ")[1] == SaveMem(prealloc=False)
    assert parse("none") == ()
    assert parse("default") == parse(PRESETS["default"])
    assert parse("save-mem{prealloc}") == (SaveMem(prealloc=True),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remove-unusd", "did you mean remove-unused?"),
        ("", "pipeline: is empty; the preset none runs no pass"),
        (" ", "is empty"),
        ("defualt", "no pass or preset 'defualt'; did you mean the preset default?"),
        ("remove-unused,", "ends with a comma"),
        (",remove-unused", "cannot read the pipeline at"),
        ("remove-unused save-mem", "cannot read the pipeline at"),
        ("save-mem{prealloc=maybe}", "wants bool, got 'maybe'"),
        ("stop-at-fixed-point{tolerance=small}", "wants float, got 'small'"),
        ("stop-at-fixed-point{tolerance=-1}", "tolerance is a number from 0 on, not -1"),
        ("stop-at-fixed-point{tolerance=nan}", "tolerance is a number from 0 on, not nan"),
        ("inline-ofg{size=-1}", "pipeline: inline-ofg: size is a number from 0 on, not -1"),
        ("fold-loops{max_bytes=-1}", "max_bytes is a number from 0 on"),
        ("save-mem{memory=1}", "has no option 'memory'"),
        ("save-mem{prealloc=true,prealloc=false}", "given twice"),
        ("save-mem{prealloc=true", "cannot read the pipeline at"),
        ("remove-unused{fast=true}", "it has: none"),
        ("default{x=1}", "takes no options"),
        ("compile-safe{only=some}", "only is all, bodies or overwritten"),
    ],
)
def test_mistakes_are_told(text: str, message: str) -> None:
    with pytest.raises(PassError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_described_by_its_name(name: str) -> None:
    assert described(print_pipeline(parse(name))) == f"preset {name}"
    assert described("save-mem") == "save-mem"


def test_text_in_a_sequence_is_no_pass() -> None:
    with pytest.raises(PassError, match="'save-mem' is no pass"):
        as_passes(["save-mem"])  # type: ignore[list-item]
    assert as_passes(as_passes("save-mem")) == parse("save-mem")


def test_every_builtin_pass_is_registered_under_its_name() -> None:
    assert [registry()[cls.name] for cls in builtin()] == list(builtin())
    assert [registered(cls.name) for cls in builtin()] == list(builtin())
