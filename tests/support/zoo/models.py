"""Every model of the zoo."""

from __future__ import annotations

from support.zoo.chains import CHAINS
from support.zoo.dynamics import DYNAMICS
from support.zoo.filters import FILTERS
from support.zoo.model import Model
from support.zoo.networks import NETWORKS
from support.zoo.series import SERIES
from support.zoo.sums import SUMS

MODELS: tuple[Model, ...] = (*FILTERS, *CHAINS, *SERIES, *SUMS, *NETWORKS, *DYNAMICS)
"""Every model, each of another name."""
