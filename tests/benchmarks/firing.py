"""How often each pass of a preset does something to real graphs: ``make firing``.

The graphs are those of the zoo with first and second derivatives, the samples, and log-densities of
PyMC models with their gradients, if PyMC is installed. A pass has changed a graph if what came out
computes otherwise, or has more or fewer nodes. A rewrite of a body that several loops share counts
once; seconds are those in which the pass ran.

With ``--gains``, which takes half an hour, a preset is also run without each of its passes: of how
many gradients and samples the result then has more loops, nodes in bodies, or nodes.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import get_context
from time import process_time
from typing import Any

os.environ.setdefault("PYTENSOR_FLAGS", "cxx=,linker=vm")

import scanopt_cli as so
from scanopt_cli.pipeline.contract import Pass
from scanopt_cli.pipeline.grammar import PRESETS, parse
from support.benchmarks.figures import markdown, origin
from support.sample_building import samples
from support.zoo.model import outputs_of
from support.zoo.models import MODELS

_PRESETS = ("default", "grad", "loop")
_GAINS = "--gains" in sys.argv
_PYMC_MODELS = ("ar2", "garch", "hidden_markov", "local_level", "rnn", "sir", "statespace")
_KINDS = ("zoo", "zoo, gradients", "zoo, second gradients", "samples", "PyMC", "PyMC, gradients")
_WITH_GAINS = ("zoo, gradients", "samples", "PyMC, gradients")

type Key = tuple[str, str]


def _graph(key: Key) -> Any:
    kind, name = key
    if kind == "samples":
        return samples()[name]
    order = 2 if "second" in kind else int("gradients" in kind)
    if kind.startswith("zoo"):
        return outputs_of(next(model for model in MODELS if model.name == name), order)
    from support import pymc_models

    model = getattr(pymc_models, name)()
    return model.value_vars, [model.dlogp() if order else model.logp()]


def _keys() -> Iterator[Key]:
    for order, kind in enumerate(_KINDS[:3]):
        yield from ((kind, model.name) for model in MODELS if order <= model.order)
    yield from (("samples", name) for name in samples())
    if find_spec("pymc") is not None:
        yield from ((kind, name) for kind in _KINDS[4:] for name in _PYMC_MODELS)


@dataclass(slots=True)
class _Row:
    """What one pass of a preset did, over all graphs."""

    changed: Counter[str] = field(default_factory=Counter)
    rewrites: int = 0
    seconds: float = 0.0
    gains: Counter[str] = field(default_factory=Counter)


def _counts(result: Any) -> dict[str, int]:
    after = result.after
    return {
        "loops": after.scans + after.loops,
        "nodes in bodies": after.inner_nodes,
        "nodes": after.inner_nodes + after.outer_nodes,
    }


def _measured(key: Key) -> tuple[dict[Key, _Row], float]:
    rows: dict[Key, _Row] = defaultdict(_Row)
    begin = process_time()
    for preset in _PRESETS:
        passes = parse(PRESETS[preset])
        result = so.optimize(_graph(key), passes)
        for run in result.passes:
            row = rows[preset, run.name]
            row.changed[key[0]] |= run.changed
            row.rewrites += run.rewrites
            row.seconds += run.seconds
        for name in {run.name for run in result.passes if run.changed}:
            if _GAINS and key[0] in _WITH_GAINS:
                _without(name, passes, key, _counts(result), rows[preset, name])
    return dict(rows), process_time() - begin


def _without(name: str, passes: Sequence[Pass], key: Key, kept: dict[str, int], row: _Row) -> None:
    """Count what is more without a pass: loops, else nodes in bodies, else nodes."""
    rest = [item for item in passes if item.name != name]
    if len(rest) == len(passes):
        return
    found = _counts(so.optimize(_graph(key), rest))
    for what, count in found.items():
        if count != kept[what]:
            row.gains[what if count > kept[what] else f"fewer {what}"] += 1
            return


def _table(preset: str, rows: dict[Key, _Row], sizes: Counter[str]) -> Iterator[str]:
    kinds = [kind for kind in _KINDS if sizes[kind]]
    yield f"\n## Preset {preset}\n"
    heads = [*(f"{kind} ({sizes[kind]})" for kind in kinds), "rewrites", "seconds"]
    heads += ["without it, of so many graphs"] if _GAINS else []
    lines = []
    for name in dict.fromkeys(item.name for item in parse(PRESETS[preset])):
        row = rows[preset, name]
        cells = [*(str(row.changed[kind]) for kind in kinds), str(row.rewrites)]
        cells.append(f"{row.seconds:.1f}")
        gains = (
            f"{what} {count}" if what.startswith("fewer") else f"more {what} {count}"
            for what, count in row.gains.most_common()
        )
        cells += [", ".join(gains)] if _GAINS else []
        lines.append([f"`{name}`", *cells])
    yield from markdown(["pass", *heads], lines)


def main() -> None:
    """Print the tables as Markdown, and progress on stderr."""
    keys = list(_keys())
    rows: dict[Key, _Row] = defaultdict(_Row)
    seconds = 0.0
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        run: Callable[..., Any] = pool.map
        for key, (found, spent) in zip(keys, run(_measured, keys), strict=True):
            seconds += spent
            print(f"{key[0]}: {key[1]}: {spent:.1f} s", file=sys.stderr, flush=True)
            for place, row in found.items():
                total = rows[place]
                total.changed.update(row.changed)
                total.rewrites += row.rewrites
                total.seconds += row.seconds
                total.gains.update(row.gains)
    sizes = Counter(kind for kind, _ in keys)
    print("# What each pass of a preset does\n")
    print(f"{origin('make firing')}\n\nIt took {seconds:,.0f} s of processor time.")
    print(str(__doc__).split("\n\n")[1])
    for preset in _PRESETS:
        print("\n".join(_table(preset, rows, sizes)))


if __name__ == "__main__":
    main()
