"""Each sample computes what a plain NumPy loop computes, and has the Scans that it shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan, ScanInfo
from pytensor.tensor.blockwise import Blockwise

import scanopt_cli
from build import EXTRAS, SAMPLES, write
from support.evaluating import evaluate

type Values = Sequence[np.ndarray]

RNG = np.random.default_rng(20)
SERIES = RNG.normal(size=7)
SQUARE = RNG.normal(size=(4, 4)) / 2


def run(module: str, name: str, *arguments: object) -> list[np.ndarray]:
    inputs, outputs = import_module(module).build()[name]
    values = evaluate(inputs, outputs, [_as_argument(argument) for argument in arguments])
    for value in values:
        if isinstance(value, Exception):
            raise value
    return values


def _as_argument(value: object) -> object:
    return value if isinstance(value, np.random.Generator) else np.asarray(value)


def derivative(
    function: Callable[..., float], arguments: Sequence[object], position: int
) -> np.ndarray:
    """Return the central differences of ``function`` by the argument at ``position``."""
    point = np.asarray(arguments[position], dtype="float64")
    slopes = np.empty(point.shape)
    for index in np.ndindex(point.shape):
        step = np.zeros(point.shape)
        step[index] = 1e-6
        ends = [
            function(*arguments[:position], point + offset, *arguments[position + 1 :])
            for offset in (-step, step)
        ]
        slopes[index] = (ends[1] - ends[0]) / 2e-6
    return slopes


def test_seed_is_the_16th_power_and_its_derivatives() -> None:
    x = 0.9
    assert run("seed_power", "seed", x)[0] == pytest.approx(x**16)
    assert run("seed_power", "seed_grad", x)[0] == pytest.approx(16 * x**15)
    assert run("seed_power", "seed_hess", x)[0] == pytest.approx(16 * 15 * x**14)


def ar2_logp(y: Values, mu0: Values, phi: Values, sigma: float) -> float:
    before_last, last = mu0
    total = 0.0
    for value in y:
        before_last, last = last, phi[0] * last + phi[1] * before_last
        total -= 0.5 * ((value - last) / sigma) ** 2 + np.log(sigma) + 0.5 * np.log(2 * np.pi)
    return float(total)


@pytest.mark.parametrize("length", [0, 1, 7])
def test_ar2(length: int) -> None:
    arguments = (SERIES[:length], np.array([0.3, -0.2]), np.array([0.6, 0.2]), 0.7)
    assert run("ar2", "ar2_logp", *arguments)[0] == pytest.approx(ar2_logp(*arguments))
    gradient = run("ar2", "ar2_dlogp", *arguments)
    for slope, position in zip(gradient, (2, 1, 3), strict=True):
        np.testing.assert_allclose(slope, derivative(ar2_logp, arguments, position), atol=1e-6)


@pytest.mark.parametrize("max_steps", [2, 50])
def test_newton(max_steps: int) -> None:
    root, steps = 10.0, 0
    while steps < max_steps:
        root, steps = 0.5 * (root + 10.0 / root), steps + 1
        if abs(root**2 - 10.0) < 1e-9:
            break
    assert steps < 10
    np.testing.assert_allclose(run("newton", "newton", 10.0, 1e-9, max_steps), [root, steps])


def test_nested() -> None:
    h, w = 0.1, 0.8
    for row in SQUARE:
        for x in row:
            h = np.tanh(w * h + x)
    assert run("nested", "nested", SQUARE, 0.1, w)[0] == pytest.approx(h)


def rnn_loss(h: np.ndarray, weights: np.ndarray) -> float:
    for _ in range(20):
        h = np.tanh(h @ weights)
    return float((h**2).sum())


def test_rnn() -> None:
    arguments = (np.array([0.5, -0.5, 1.0, 0.2]), 2 * SQUARE)
    assert run("rnn", "rnn", *arguments)[0] == pytest.approx(rnn_loss(*arguments))
    (gradient,) = run("rnn", "rnn_grad", *arguments)
    np.testing.assert_allclose(gradient, derivative(rnn_loss, arguments, 1), atol=1e-6)


def kalman_logp(
    y: Values, level: float, variance: float, sigma_obs: float, sigma_level: float
) -> float:
    total = 0.0
    for value in y:
        variance = variance + sigma_level**2
        spread = variance + sigma_obs**2
        total -= 0.5 * (np.log(2 * np.pi * spread) + (value - level) ** 2 / spread)
        level += variance / spread * (value - level)
        variance *= 1 - variance / spread
    return float(total)


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("length", [0, 1, 7])
def test_kalman(length: int) -> None:
    arguments = (SERIES[:length], 0.1, 2.0, 0.6, 0.3)
    assert run("kalman", "kalman_logp", *arguments)[0] == pytest.approx(kalman_logp(*arguments))
    gradient = run("kalman", "kalman_dlogp", *arguments)
    for slope, position in zip(gradient, (3, 4), strict=True):
        np.testing.assert_allclose(slope, derivative(kalman_logp, arguments, position), atol=1e-6)


def test_random_walk() -> None:
    rng, x, positions = np.random.default_rng(3), 1.5, []
    for _ in range(6):
        x += 0.2 * rng.normal()
        positions.append(x)
    walk, last_rng = run("random_walk", "random_walk", np.random.default_rng(3), 1.5, 0.2, 6)
    np.testing.assert_allclose(walk, positions)
    assert last_rng.normal() == rng.normal()


def test_unused() -> None:
    stock, stocks = 3.0, []
    for delivery in SERIES:
        stock = 0.9 * stock + delivery
        stocks.append(stock)
    np.testing.assert_allclose(run("unused", "unused", SERIES, SERIES, 3.0, 0.1, 5.0)[0], stocks)


def test_duplicates() -> None:
    value, values = 0.5, []
    for price in SERIES:
        value = 0.9 * value + 2 * np.tanh(price / np.exp(0.3))
        values.append(value)
    np.testing.assert_allclose(run("duplicates", "duplicates", SERIES, 0.5, 0.3)[0], values)


def test_wrapped() -> None:
    level, levels = SERIES[0], []
    for value in SERIES:
        level += 0.4 * (value - level)
        levels.append(level)
    np.testing.assert_allclose(run("wrapped", "wrapped", SERIES, 0.4)[0], levels)


def populations(x: np.ndarray) -> float:
    sizes = np.zeros_like(x)
    for _ in range(3):
        sizes = sizes * np.exp(-0.1 * sizes.sum()) + x
    return float(sizes.sum())


def test_vectorised() -> None:
    x = np.array([0.5, 1.0, 0.7])
    (hessian,) = run("vectorised", "vectorised", x)

    def slope(position: int) -> Callable[[np.ndarray], float]:
        step = 1e-4 * np.eye(3)[position]
        return lambda at: (populations(at + step) - populations(at - step)) / 2e-4

    expected = [
        [(slope(i)(x + step) - slope(i)(x - step)) / 2e-4 for step in 1e-4 * np.eye(3)]
        for i in range(3)
    ]
    np.testing.assert_allclose(hessian, expected, atol=1e-6)


def garch_logp(omega_log: float, alpha_interval: float, beta_interval: float) -> float:
    """Evaluate the model by hand, with the log-Jacobians of the transformed parameters."""
    returns = import_module("garch").RETURNS
    omega = np.exp(omega_log)
    total = -0.5 * omega**2 + 0.5 * np.log(2 / np.pi) + omega_log
    shares = [1 / (1 + np.exp(-value)) for value in (alpha_interval, beta_interval)]
    total += sum(np.log(share) + np.log1p(-share) for share in shares)
    alpha, beta = (0.5 * share for share in shares)
    variance = 1.0
    for position, value in enumerate(returns):
        if position:
            variance = omega + alpha * returns[position - 1] ** 2 + beta * variance
        total -= 0.5 * (np.log(2 * np.pi * variance) + value**2 / variance)
    return float(total)


@pytest.mark.pymc
def test_garch() -> None:
    arguments = (-0.7, 0.2, 0.4)
    assert run("garch", "garch_logp", *arguments)[0] == pytest.approx(garch_logp(*arguments))
    (gradient,) = run("garch", "garch_dlogp", *arguments)
    expected = [derivative(garch_logp, arguments, position) for position in range(3)]
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


@pytest.mark.pymc
def test_garch_loads_without_trust(tmp_path: Path) -> None:
    write(import_module("garch").build(), tmp_path)
    for name in ("garch_logp", "garch_dlogp"):
        loaded = scanopt_cli.load(tmp_path / f"{name}.pkl")
        assert [item.name for item in loaded.inputs] == [
            "omega_log__",
            "alpha_interval__",
            "beta_interval__",
        ]


def scans(module: str, name: str) -> list[tuple[str, ScanInfo]]:
    """List the Scans of a sample, each with the kinds of ops that it is inside of."""
    return list(_scans(*import_module(module).build()[name], path=""))


def _scans(inputs: Sequence, outputs: Sequence, path: str) -> Iterator[tuple[str, ScanInfo]]:
    for node in applys_between(inputs, outputs):
        op, inside = node.op, path
        if isinstance(op, Blockwise):
            op, inside = op.core_op, f"{inside}Blockwise/"
        if isinstance(op, Scan):
            yield f"{inside}Scan", op.info
        if isinstance(op, Scan | OpFromGraph):
            yield from _scans(op.fgraph.inputs, op.fgraph.outputs, f"{inside}{type(op).__name__}/")


@pytest.mark.parametrize(
    ("module", "name", "paths"),
    [
        ("seed_power", "seed", ["Scan"]),
        ("seed_power", "seed_grad", ["Scan"] * 2),
        ("seed_power", "seed_hess", ["Scan"] * 4),
        ("ar2", "ar2_logp", ["Scan"]),
        ("ar2", "ar2_dlogp", ["Scan"] * 2),
        ("newton", "newton", ["Scan"]),
        ("nested", "nested", ["Scan", "Scan/Scan"]),
        ("rnn", "rnn", ["Scan"]),
        ("rnn", "rnn_grad", ["Scan"] * 2),
        ("kalman", "kalman_logp", ["Scan"]),
        ("kalman", "kalman_dlogp", ["Scan"] * 2),
        ("random_walk", "random_walk", ["Scan"]),
        ("unused", "unused", ["Scan"]),
        ("duplicates", "duplicates", ["Scan"]),
        ("wrapped", "wrapped", ["OpFromGraph/Scan"]),
        ("vectorised", "vectorised", ["Scan"] * 2 + ["Blockwise/Scan"] * 3),
    ],
)
def test_the_scans_are_where_the_sample_says(module: str, name: str, paths: list[str]) -> None:
    assert sorted(path for path, _ in scans(module, name)) == sorted(paths)


@pytest.mark.parametrize(
    ("module", "name", "kinds"),
    [
        ("seed_power", "seed", {"n_sit_sot": 1}),
        ("ar2", "ar2_logp", {"n_mit_sot": 1, "n_non_seqs": 1}),
        ("newton", "newton", {"n_sit_sot": 1, "as_while": True, "n_non_seqs": 2}),
        ("rnn", "rnn", {"n_seqs": 2, "n_sit_sot": 1}),
        ("kalman", "kalman_logp", {"n_seqs": 1, "n_sit_sot": 2, "n_nit_sot": 1}),
        ("random_walk", "random_walk", {"n_untraced_sit_sot": 1, "n_sit_sot": 1}),
        ("unused", "unused", {"n_seqs": 2, "n_sit_sot": 4, "n_non_seqs": 2}),
        ("duplicates", "duplicates", {"n_seqs": 2, "n_sit_sot": 1, "n_non_seqs": 2}),
    ],
)
def test_the_loop_has_the_slots_it_shows(module: str, name: str, kinds: dict[str, int]) -> None:
    ((_, info),) = scans(module, name)
    assert {kind: getattr(info, kind) for kind in kinds} == kinds


def test_the_gradient_of_two_taps_has_three() -> None:
    taps = [info.mit_mot_in_slices for _, info in scans("ar2", "ar2_dlogp")]
    assert sorted(map(len, (slots[0] for slots in taps if slots))) == [3]


@pytest.mark.deep
def test_files_load_again_under_their_names(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    graphs = {
        name: graph for module in SAMPLES for name, graph in import_module(module).build().items()
    }
    write(graphs, tmp_path)
    assert capsys.readouterr().out.split() == [str(tmp_path / f"{name}.pkl") for name in graphs]
    for name, (inputs, outputs) in graphs.items():
        loaded = scanopt_cli.load(tmp_path / f"{name}.pkl")
        assert [variable.name for variable in loaded.inputs] == [item.name for item in inputs]
        assert [variable.type for variable in loaded.outputs] == [item.type for item in outputs]


def test_every_script_is_listed() -> None:
    folder = Path(import_module("build").__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*SAMPLES, *EXTRAS, "build", "picture"}


def test_the_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "picture.svg"
    monkeypatch.setattr(sys, "argv", ["picture.py", str(target)])
    import_module("picture").main()
    assert "unused.pkl" in target.read_text()
