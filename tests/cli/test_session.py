"""What a session changes in the process ends with it."""

from __future__ import annotations

import logging
import signal
import warnings
from pathlib import Path

import pytest
from pytensor.configdefaults import config
from pytensor.tensor.rewriting.basic import unconditional_constant_folding

from scanopt_cli.cli.session import session
from scanopt_cli.errors import LoadError


def surroundings() -> dict[str, object]:
    return {
        "folding": "transform" in vars(unconditional_constant_folding),
        "log": list(logging.getLogger("pytensor").handlers),
        "traces": config.traceback__limit,
        "warnings": list(warnings.filters),
        "alarm": signal.getsignal(signal.SIGPROF),
        "is timed": signal.getitimer(signal.ITIMER_PROF)[0] > 0,
    }


def test_nothing_outlives_a_session(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pkl"
    with config.change_flags(traceback__limit=8):
        before = surroundings()

        def fail() -> None:
            with session(missing, trust=False, allow_packages=None) as work:
                inside = surroundings()
                assert [name for name in before if inside[name] == before[name]] == []
                with pytest.raises(LoadError):
                    work.load(missing)
                assert surroundings() == inside
                work.load(missing)

        with pytest.raises(LoadError):
            fail()
        assert surroundings() == before


def test_no_limit_of_whom_the_user_trusts(tmp_path: Path) -> None:
    with session(tmp_path, trust=True, allow_packages=None) as work:
        assert not surroundings()["is timed"]
        assert (work.trust, work.allow_packages) == (True, ())
