"""Where graphs are worked on: in so many processes here, or by the workers of a Dask cluster."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from scanopt_cli.environment import JOBS
from scanopt_cli.errors import ScanoptError


class ClusterError(ScanoptError):
    """A cluster cannot do what is left to do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, by the ``address`` of its scheduler, and the ``option`` that the user gave."""

    address: str
    option: str


type Where = int | Cluster | None
"""A number of processes, 0 for none but this one and ``None`` for one for each core; or a cluster.
"""


def where_to_work(jobs: int | None, cluster: str | None, scheduler_file: Path | None) -> Where:
    """Return what ``--jobs``, ``--cluster`` and ``--scheduler-file`` say.

    Raises
    ------
    ScanoptError
        If they say different things, the file cannot be read, or Dask is not there.
    """
    if cluster is None and scheduler_file is None:
        return jobs
    if cluster is not None and scheduler_file is not None:
        hint = "leave one out"
        raise ScanoptError("is not for --cluster", where="--scheduler-file", hint=hint)
    option = f"--cluster {cluster}" if scheduler_file is None else "--scheduler-file"
    if jobs is not None and str(jobs) != os.environ.get(JOBS, "").strip():
        hint = "leave one out; the threads of the workers say how many graphs they work on"
        raise ScanoptError(f"is not for {option.split()[0]}", where="--jobs", hint=hint)
    if scheduler_file is not None:
        option = f"--scheduler-file {scheduler_file}"
    if find_spec("distributed") is None:
        hint = "run pip install 'scanopt[dask]'"
        raise ScanoptError("needs Dask, which is not installed", where=option, hint=hint)
    return Cluster(cluster or _address(scheduler_file, option), option)


def _address(file: Path | None, option: str) -> str:
    """Return the address in the file that a scheduler writes."""
    hint = "give the file that dask scheduler --scheduler-file writes"
    try:
        found = json.loads(Path(file or "").read_bytes())
    except OSError as error:
        raise ScanoptError(
            f"cannot be read: {error.strerror or error}", where=option, hint=hint
        ) from None
    except (ValueError, RecursionError):
        raise ScanoptError("is no JSON", where=option, hint=hint) from None
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str) or not address:
        raise ScanoptError("holds no address of a scheduler", where=option, hint=hint)
    return address
