"""Draw the README's picture: ``python sample_graphs/picture.py [file.svg]``.

It shows ``scanopt optimize sample_graphs/unused.pkl`` as a terminal does, by the same renderers.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from scanopt_cli.ir.graph import as_graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports import as_rich
from scanopt_cli.reports.optimize_report import next_steps, optimize_report
from scanopt_cli.rules.graph_checking import check
from unused import build

_COMMAND = "scanopt optimize unused.pkl"
_FILE = Path(__file__).parent.parent / ".github" / "optimize.svg"
_WIDTH = 90


def main() -> None:
    """Optimize the sample and write what is printed as an SVG."""
    graph = as_graph(build()["unused"], source="unused.pkl")
    result = optimize(graph)
    left = check(result.graph)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(f"$ {_COMMAND}", style="dim", highlight=False)
    as_rich.show(console, optimize_report(graph.source, result, left.findings), folds=True)
    as_rich.show(console, next_steps(result, left, None), folds=True)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else _FILE
    console.save_svg(str(target), title="scanopt", theme=MONOKAI, unique_id="scanopt")
    print(target)


if __name__ == "__main__":
    main()
