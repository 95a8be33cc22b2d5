"""What a process remembers of graphs, and forgets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
# In a process of its own: the collector does not look among what was there before the tests.
PROGRAM = """
import json
from pytensor.graph.basic import FrozenApply
import scanopt_cli as so
from scanopt_cli.ir.remembering import forget_graphs
from support.seeded_loops import SEEDED_LOOPS

def check():
    # PyTensor's own rewriters are asked what they make of it.
    _, graph, _ = SEEDED_LOOPS["rows from the end"]
    inputs_outputs = graph()
    so.optimize(inputs_outputs, "default,loop")
    return [finding.code for finding in so.check(inputs_outputs).findings]

results = []
for _ in range(3):
    codes = check()
    kept = len(FrozenApply._cache)
    forget_graphs()
    results.append([codes, kept, len(FrozenApply._cache)])
print(json.dumps(results))
"""


def test_graphs_are_forgotten_and_rewriters_find_again_what_is_for_them() -> None:
    path = os.pathsep.join([*map(str, (TESTS.parent, TESTS)), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    results = json.loads(done.stdout)
    assert all(kept > 0 for _, kept, _ in results)  # else there is nothing to forget
    assert [left for *_, left in results] == [0, 0, 0]
    assert results[0][0] == results[1][0] == results[2][0] != []
