"""What is kept of graphs that were rewritten and are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
# In a process of its own: the collector does not look among what was there before the tests.
PROGRAM = """
import gc, json
from pathlib import Path
from pytensor.scan.op import Scan
import scanopt_cli as so
from scanopt_cli.cli import session as sessions
from support.seeded_loops import SEEDED_LOOPS

def check():
    # PyTensor's own rewriters are asked what they make of it.
    _, graph, _ = SEEDED_LOOPS["rows from the end"]
    return [finding.code for finding in so.check(graph()).findings]

def loops():
    gc.collect()
    return sum(type(each) is Scan for each in gc.get_objects())

sessions._SESSIONS = 2
codes, counts = check(), []
for _ in range(2):
    with sessions.session(Path("none.scanopt"), trust=False, allow_packages=None):
        pass
    counts.append(loops())
print(json.dumps([*counts, codes, check()]))
"""


def test_sessions_forget_loops_once_in_a_while_and_find_again_what_is_for_them() -> None:
    path = os.pathsep.join([*map(str, (TESTS.parent, TESTS)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    first, second, codes, again = json.loads(done.stdout)
    assert first > 0  # else PyTensor keeps none, and there is nothing to forget
    assert second == 0
    assert codes == again != []
