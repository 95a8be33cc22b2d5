"""The plug-in for pytest: off until it is asked for, and then it fails tests by what is found."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any

import pytest

import scanopt_cli as so
from scanopt_cli.testing import checked_compilations

pytest_plugins = "pytester"

PLUGIN = "scanopt_cli.testing.pytest_plugin"
MODEL = """
import pytensor, pytensor.tensor as pt, pytest

def graph(read=False):
    x, v = pt.dvector("x"), pt.dscalar("v")
    ys, logs = pytensor.scan(
        lambda a, s: [pt.sin(s * a), pt.log(a)],
        sequences=[x],
        outputs_info=[v, None],
        return_updates=False,
    )
    return [x, v], [ys, logs] if read else [ys]

def compiled(read=False, name=None):
    return pytensor.function(*graph(read), mode="FAST_COMPILE", name=name)
"""
WASTE = "P001 [*] scan_fn (model.py:5 in graph): nobody reads nit_sot `nit_sot[0]`"


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Import all that a run needs: it forgets what it imports, and NumPy comes only once."""
    model: dict[str, Any] = {}
    exec(MODEL, model)
    model["compiled"]()
    so.check(model["graph"]())


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(model=MODEL)
    pytester.syspathinsert()
    pytester.makeini("[pytest]\naddopts = --strict-markers\n")
    return pytester


def run(suite: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    suite.makepyfile(test_it=f"import pytest\nfrom model import graph, compiled\n{text}")
    # What the suite imports is its own model, not that of a suite before.
    sys.modules.pop("model", None)
    return suite.runpytest_inprocess(*options)


USELESS = "def test_useless():\n    compiled(name='loop')\n"
CLEAN = "def test_clean():\n    compiled(read=True)\n"


def test_it_is_off_unless_asked_for(suite: pytest.Pytester) -> None:
    run(suite, USELESS + CLEAN).assert_outcomes(passed=2)


def test_it_imports_nothing_until_it_is_used(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plug-ins of others import NumPy
    suite.makepyfile(
        test_it="import sys\ndef test_it():\n"
        "    assert not {'pytensor', 'numpy', 'rich', 'typer'} & set(sys.modules)\n"
    )
    suite.runpytest_subprocess("-p", "scanopt_cli.testing.pytest_plugin").assert_outcomes(passed=1)


def test_the_option_fails_tests_by_what_is_found(suite: pytest.Pytester) -> None:
    done = run(suite, f"{USELESS}{CLEAN}def test_again():\n    compiled()\n", "--scanopt")
    done.assert_outcomes(passed=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            "scanopt check: P001",
            "  function loop, compiled at model.py:14",
            f"    {escaped(WASTE)}",
        ]
    )
    summary = section(done)
    assert summary.count(WASTE) == 1
    assert f"{WASTE} (test_it.py::test_useless and 1 more)" in summary


def section(done: pytest.RunResult) -> str:
    """Return what the plug-in prints at the end, without pytest's own summary behind it."""
    return done.stdout.str().partition("= scanopt check =")[2].lstrip("=").partition("\n==")[0]


def escaped(text: str) -> str:
    """Return a text for ``fnmatch``, where brackets are sets of letters."""
    return text.replace("[", "[[]")


def test_the_setting_does_as_the_option(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nscanopt = true\n")
    run(suite, USELESS + CLEAN).assert_outcomes(passed=1, failed=1)


def test_the_fixture_checks_what_is_compiled(suite: pytest.Pytester) -> None:
    text = """
        def test_useless(scanopt_check):
            compiled()

        def test_clean(scanopt_check):
            compiled(read=True)

        def test_unchecked():
            compiled()
        """
    done = run(suite, dedent(text))
    done.assert_outcomes(passed=2, failed=1)
    assert WASTE in done.stdout.str()


def test_the_fixture_is_called_with_graphs(suite: pytest.Pytester) -> None:
    text = """
        def test_useless(scanopt_check):
            scanopt_check(graph())
            raise AssertionError("not reached")

        def test_ignored(scanopt_check):
            assert scanopt_check(graph(), ignore="P001").findings == ()

        def test_selected(scanopt_check):
            assert scanopt_check(graph(), select=["R", "C"]).findings == ()

        def test_clean(scanopt_check):
            assert scanopt_check(graph(read=True)).findings == ()
        """
    done = run(suite, dedent(text))
    done.assert_outcomes(passed=3, failed=1)
    assert WASTE in done.stdout.str()
    assert "not reached" not in done.stdout.str().partition("short test summary")[2]


def test_the_marker_says_by_which_rules(suite: pytest.Pytester) -> None:
    text = """
        @pytest.mark.scanopt
        def test_useless():
            compiled()

        @pytest.mark.scanopt(ignore="P001,R")
        def test_ignored():
            compiled()

        @pytest.mark.scanopt(select=["C", "R"])
        def test_selected():
            compiled()

        @pytest.mark.scanopt(select="P")
        class TestAll:
            def test_useless(self):
                compiled()

            @pytest.mark.scanopt(ignore="P001")
            def test_ignored(self):
                compiled()

        @pytest.mark.scanopt(check=False)
        def test_unchecked():
            compiled()
        """
    done = run(suite, dedent(text), "--scanopt")
    done.assert_outcomes(passed=4, failed=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("select='X'", "no rule's code begins with 'X'"),
        ("'P'", "the marker scanopt takes select, ignore and check by name"),
        ("selects='P'", "the marker scanopt takes select, ignore and check by name"),
    ],
)
def test_a_bad_marker_is_an_error_of_one_line(
    arguments: str, message: str, suite: pytest.Pytester
) -> None:
    done = run(suite, f"@pytest.mark.scanopt({arguments})\ndef test_it():\n    pass\n")
    done.assert_outcomes(errors=1)
    assert message in done.stdout.str()
    assert "Traceback" not in done.stdout.str()


def test_settings_are_those_of_check(suite: pytest.Pytester) -> None:
    table = "[tool.scanopt.check]\n"
    for text, failed in (
        ("ignore = ['P001']", 0),
        ("per-file-ignores = { 'test_it.py' = ['P'] }", 0),
        ("select = ['P']", 1),
    ):
        suite.makepyprojecttoml(table + text)
        run(suite, USELESS, "--scanopt").assert_outcomes(passed=1 - failed, failed=failed)
    suite.makepyprojecttoml(f"{table}selects = []")
    done = run(suite, USELESS, "--scanopt")
    done.assert_outcomes(errors=1)
    assert "has no entry 'selects'" in done.stdout.str()


def test_what_fixtures_compile_belongs_to_the_test(suite: pytest.Pytester) -> None:
    text = """
        @pytest.fixture
        def function():
            return compiled()

        def test_it(function):
            pass

        def test_other():
            pass
        """
    run(suite, dedent(text), "--scanopt").assert_outcomes(passed=1, failed=1)


def test_a_test_that_fails_by_itself_says_why(suite: pytest.Pytester) -> None:
    text = "def test_it():\n    compiled()\n    assert 1 == 2, 'of its own'\n"
    done = run(suite, text, "--scanopt")
    done.assert_outcomes(failed=1)
    assert "of its own" in done.stdout.str()
    assert "scanopt check" not in done.stdout.str()


def test_an_expected_failure_and_a_skip_stay_what_they_are(suite: pytest.Pytester) -> None:
    text = """
        @pytest.mark.xfail(strict=True, reason="the plug-in finds waste in what this compiles")
        def test_known():
            compiled()

        def test_skipped():
            compiled()
            pytest.skip("it is the skip of this suite that is tested")
        """
    run(suite, dedent(text), "--scanopt").assert_outcomes(xfailed=1, skipped=1)


def test_warnings_of_the_check_are_none_of_the_test(suite: pytest.Pytester) -> None:
    suite.makeini("[pytest]\nfilterwarnings = error\n")
    run(suite, CLEAN, "--scanopt").assert_outcomes(passed=1)


def test_pytensor_is_as_it_was_afterwards(suite: pytest.Pytester) -> None:
    from pytensor.compile.maker import FunctionMaker
    from pytensor.scan.op import Scan

    before = vars(FunctionMaker)["create_fgraph"], Scan.__init__
    text = """
        @pytest.fixture
        def failing():
            compiled()
            raise ValueError("in the setup")

        def test_it(failing):
            pass

        def test_useless():
            compiled()
        """
    done = run(suite, dedent(text), "--scanopt")
    done.assert_outcomes(errors=1, failed=1)
    assert (vars(FunctionMaker)["create_fgraph"], Scan.__init__) == before


def test_equal_graphs_are_checked_once(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = []
    original = checked_compilations.check

    def counted(graph: object, **options: object) -> object:
        checked.append(graph)
        return original(graph, **options)

    monkeypatch.setattr(checked_compilations, "check", counted)
    text = "@pytest.mark.parametrize('n', range(5))\ndef test_it(n):\n    compiled()\n"
    done = run(suite, text, "--scanopt")
    done.assert_outcomes(failed=5)
    assert len(checked) == 1
    assert "test_it.py::test_it[0] and 4 more)" in done.stdout.str()


def test_what_cannot_be_checked_is_no_success(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("no luck")

    monkeypatch.setattr(checked_compilations, "check", broken)
    done = run(suite, USELESS, "--scanopt")
    done.assert_outcomes(failed=1)
    assert "could not be checked: ValueError: no luck" in done.stdout.str()


@pytest.mark.deep
def test_workers_of_xdist_report_to_one_summary(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_a="from model import compiled\n" + USELESS,
        test_b="from model import compiled\n" + USELESS + CLEAN,
    )
    done = suite.runpytest_subprocess("--scanopt", "-n", "2")
    done.assert_outcomes(passed=1, failed=2)
    summary = section(done)
    assert summary.count(WASTE) == 1
    assert "::test_useless and 1 more)" in summary


def test_pytest_finds_the_plug_in_by_an_entry_point() -> None:
    file = Path(__file__).parents[2] / "pyproject.toml"
    points = tomllib.loads(file.read_text())["project"]["entry-points"]["pytest11"]
    assert points == {"scanopt": PLUGIN}
    assert resolve_name(PLUGIN).scanopt_check
