"""Every model of the zoo."""

from __future__ import annotations

from zoo_chains import CHAINS
from zoo_dynamics import DYNAMICS
from zoo_filters import FILTERS
from zoo_model import Model
from zoo_networks import NETWORKS
from zoo_series import SERIES
from zoo_sums import SUMS

MODELS: tuple[Model, ...] = (*FILTERS, *CHAINS, *SERIES, *SUMS, *NETWORKS, *DYNAMICS)
"""Every model, each of another name."""
