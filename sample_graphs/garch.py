"""A GARCH(1,1) model as PyMC builds it: volatility that feeds on itself and on past returns.

``garch_logp`` is the model's log-probability by its three unconstrained parameters, and
``garch_dlogp`` the gradient that a sampler asks for. The observed returns are constants of the
graph, and one Scan computes the volatilities.
"""

from __future__ import annotations

import pymc as pm
from pytensor.graph.basic import Variable

RETURNS = (0.1, -0.2, 0.3, 0.05, -0.4, 0.15)


def build() -> dict[str, tuple[list[Variable], list[Variable]]]:
    """Return the log-probability and its gradient, by the model's value variables."""
    with pm.Model() as model:
        pm.GARCH11(
            "returns",
            omega=pm.HalfNormal("omega"),
            alpha_1=pm.Uniform("alpha", 0, 0.5),
            beta_1=pm.Uniform("beta", 0, 0.5),
            initial_vol=1.0,
            observed=RETURNS,
        )
    return {
        "garch_logp": (model.value_vars, [model.logp()]),
        "garch_dlogp": (model.value_vars, [model.dlogp()]),
    }


if __name__ == "__main__":
    from build import HERE, write

    write(build(), HERE)
