"""The workers of a Dask cluster: which of them can be used, and what is given to which.

We submit to one worker at a time that we choose, and not through Joblib's Dask backend, because
more is to be known and done of each file than that does: which worker has it, to stop it, and to do
it again elsewhere. See docs/explain/decisions/a_worker_for_each_file.md.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

from scanopt_cli.cli.cluster_contract import LostError
from scanopt_cli.cli.cluster_work import end
from scanopt_cli.cli.console import status, tell
from scanopt_cli.cli.error_text import debugging
from scanopt_cli.cli.where import Cluster, ClusterError
from scanopt_cli.errors import brief

_CONNECTING = 10.0
"""Seconds in which the scheduler has to answer."""
_LOOKS = 0.5
"""Seconds between two looks at which workers there are."""
PATIENCE = 15.0
"""Seconds in which a worker has to come if there is none; one that died may be started anew."""
SILENCE = 30.0
"""Seconds without a word of a worker after which it is taken for lost: it may be frozen."""
_GATHERING = 30.0
"""Seconds in which a worker has to hand over a result that it has."""
_FETCHING = 32
"""How many results are fetched at a time; those of a worker that died keep others from nothing."""
_ENDING = 5.0
"""Seconds in which the workers have to hear that a command is over."""

# As text, for the builtin `eval`, since neither the scheduler nor a worker may have this scanopt.
_FACTS = """{
    'scanopt': __import__('scanopt_cli.version', fromlist=['version']).__version__,
    'Python': '.'.join(map(str, __import__('sys').version_info[:2])),
    **{
        package: __import__('importlib.metadata', fromlist=['version']).version(name)
        for package, name in (('PyTensor', 'pytensor'), ('NumPy', 'numpy'))
    },
    'floatX': getattr(
        __import__('scanopt_cli.environment', fromlist=['x']), 'flag_of_pytensor', lambda _: None
    )('floatX') or 'float64',
    'plug-ins': ', '.join(sorted({
        f'{point.dist.name} {point.dist.version}'
        for group in ('scanopt.passes', 'scanopt.rules')
        for point in __import__('importlib.metadata', fromlist=['x']).entry_points(group=group)
    })),
}"""
_WORK = "__import__('scanopt_cli.cli.cluster_work', fromlist=['work']).work(order)"


class _Work:
    """A file that a worker has, and what came of it: it is fetched by a thread of its own."""

    def __init__(self, future: Any) -> None:
        self.future = future
        self.outcome: bytes | Exception | None = None

    def done(self) -> bool:
        """Whether there is a result, or an error."""
        return self.outcome is not None

    def fetch(self) -> None:
        """Get the result from the worker, which may have died meanwhile."""
        from distributed import KilledWorker, TimeoutError

        try:
            self.outcome = self.future.result(timeout=_GATHERING)
        except (KilledWorker, TimeoutError, CancelledError) as error:
            self.outcome = LostError()
            self.outcome.__cause__ = error
        except Exception as error:
            self.outcome = error
        self.future.release()


class DaskWorkers:
    """The workers of a scheduler of Dask.

    Attributes
    ----------
    usable
        How many threads each worker has that has the same programs as we have, by its address.

    Raises
    ------
    ClusterError
        If the scheduler cannot be reached.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.usable: dict[str, int] = {}
        self._cluster = cluster
        self._own = eval(_FACTS)
        self._asked: dict[str, Any] = {}
        self._good: set[str] = set()
        self._refused: set[str] = set()
        self._paused: dict[str, float] = {}
        self._heard: dict[str, tuple[float, float]] = {}
        self._was_used = False
        self._looked = -_LOOKS
        self._since = time.monotonic()
        self._threads = ThreadPoolExecutor(_FETCHING)
        with status(cluster.address, "connecting"):
            self._client = _connected(cluster)

    def look(self) -> None:
        """Find out which workers there are now, and whether they can be used; not all the time.

        Raises
        ------
        ClusterError
            If there was none for long, or the connection to the scheduler is lost.
        """
        if time.monotonic() - self._looked < _LOOKS:
            return
        found = self._found()
        self._looked = time.monotonic()
        for address in self._asked.keys() | self._good | self._refused:
            if address not in found:  # another may come with the address of one that is gone
                self._asked.pop(address, None)
                self._good.discard(address)
                self._refused.discard(address)
        # One that is silent is asked once more, and so used again if it answers.
        self._good -= {each for each, worker in found.items() if self._is_silent(each, worker)}
        for address in found:
            if address not in (*self._asked, *self._good, *self._refused):
                self._asked[address] = self._submitted(address, _FACTS, {})
        for address, facts in [(a, f) for a, f in self._asked.items() if f.done()]:
            del self._asked[address]
            self._judge(address, facts)
        self.usable = {
            address: threads
            for address, worker in found.items()
            if address in self._good and (threads := self._threads_of(address, worker)) is not None
        }
        if self.usable:
            self._since = self._looked
        else:
            self._require_hope(found)

    def start(self, worker: str, order: bytes, call: Callable[[Any], None]) -> Any:
        """Let a worker do what is ordered; then ``call``, in another thread, with what is returned.

        Raises
        ------
        ClusterError
            If the connection to the scheduler is lost.
        """
        work = _Work(self._submitted(worker, _WORK, {"order": order}))

        def fetch() -> None:
            work.fetch()
            call(work)

        def fetch_later(_future: Any) -> None:
            with suppress(RuntimeError):  # it is over
                self._threads.submit(fetch)

        work.future.add_done_callback(fetch_later)
        return work

    def result(self, work: _Work) -> bytes:
        """Return the result of what was started and is done.

        Raises
        ------
        LostError
            If the worker was lost before it handed it over.
        Exception
            That of the worker, if its thread could not do the work.
        """
        if isinstance(work.outcome, bytes):
            return work.outcome
        raise work.outcome or LostError()

    def cancel(self, work: _Work) -> None:
        """Forget what was started."""
        with suppress(Exception):
            self._client.cancel([work.future], force=True)

    def end(self, run: str) -> None:
        """Let the workers end the processes of a command, and leave the cluster."""

        def leave() -> None:
            with suppress(Exception):
                left = sorted(self._good & self._found().keys())
                if left:
                    self._client.run(end, run, workers=left, on_error="ignore")
            with suppress(Exception):
                self._client.close(timeout=_ENDING)

        self._threads.shutdown(wait=False, cancel_futures=True)
        # A worker may be stuck.
        leaving = threading.Thread(target=leave, daemon=True)
        leaving.start()
        leaving.join(2 * _ENDING)

    def _found(self) -> Mapping[str, Any]:
        try:
            if self._client.status == "running":
                workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
                return workers
        except (OSError, CancelledError):
            pass
        raise self._is_lost()

    def _threads_of(self, address: str, worker: Mapping[str, Any]) -> int | None:
        """Return how many threads a worker has; 0 if it pauses, ``None`` if it does so for long."""
        if worker["status"] == "running":
            self._paused.pop(address, None)
            return int(worker["nthreads"])
        since = self._paused.setdefault(address, self._looked)
        return 0 if self._looked - since < PATIENCE else None

    def _is_silent(self, address: str, worker: Mapping[str, Any]) -> bool:
        """Whether the scheduler has not heard of a worker for long; clocks may differ."""
        heard, since = self._heard.get(address, (None, 0.0))
        if worker["last_seen"] != heard:
            self._heard[address] = worker["last_seen"], self._looked
            return False
        return self._looked - since > SILENCE

    def _is_lost(self) -> ClusterError:
        hint = "see what the scheduler says, and run the command again"
        return ClusterError("the scheduler is gone", where=self._cluster.option, hint=hint)

    def _submitted(self, worker: str, code: str, names: dict[str, Any]) -> Any:
        key = f"scanopt-{uuid4().hex}"
        try:
            with warnings.catch_warnings(action="ignore"):  # of large graphs
                return self._client.submit(
                    *(eval, code, names), key=key, pure=False, workers=[worker]
                )
        except Exception as error:
            raise self._is_lost() from error

    def _judge(self, address: str, facts: Any) -> None:
        try:
            theirs = facts.result(timeout=_GATHERING)
        except Exception as error:
            self._refuse(address, f"scanopt cannot be run there: {brief(error)}")
            return
        other = [
            f"{name} {theirs[name] or 'none'}, here {version or 'none'}"
            for name, version in self._own.items()
            if theirs[name] != version
        ]
        if other:
            self._refuse(address, f"it has {'; '.join(other)}")
        else:
            self._good.add(address)
            self._was_used = True

    def _refuse(self, address: str, why: str) -> None:
        self._refused.add(address)
        tell(f"warning: the worker {address} is not used: {why}")

    def _require_hope(self, found: Mapping[str, Any]) -> None:
        """Check that a worker may come yet."""
        option = self._cluster.option
        if found and found.keys() == self._refused and not self._was_used:
            hint = "install the same versions there as here"
            raise ClusterError("no worker can be used", where=option, hint=hint)
        if time.monotonic() - self._since > PATIENCE:
            hint = "start a worker: dask worker ADDRESS"
            left = "no worker is left" if self._was_used else "there is no worker"
            raise ClusterError(left, where=option, hint=hint)


def _connected(cluster: Cluster) -> Any:
    """Return a client of a scheduler.

    Raises
    ------
    ClusterError
        If the scheduler cannot be reached.
    """
    from distributed import Client

    if not debugging.get():  # what is of interest is told by us
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    hint = "give the address of a Dask scheduler, such as tcp://127.0.0.1:8786"
    try:
        # A Client would wait without end for what speaks otherwise.
        kind = asyncio.run(asyncio.wait_for(_kind_of(cluster.address), _CONNECTING + 2))
        if kind == "Scheduler":
            with warnings.catch_warnings(action="ignore"):  # of versions of no interest
                return Client(
                    cluster.address, timeout=_CONNECTING, name="scanopt", set_as_default=False
                )
    except TimeoutError as error:
        what = f"no scheduler answers there in {_CONNECTING:g} seconds"
        raise ClusterError(what, where=cluster.option, hint=hint) from error
    except Exception as error:
        what = f"no scheduler can be reached: {str(error)[:200] or type(error).__name__}"
        raise ClusterError(what, where=cluster.option, hint=hint) from error
    raise ClusterError(f"is a {kind.lower()}, and no scheduler", where=cluster.option, hint=hint)


async def _kind_of(address: str) -> str:
    """Return what has an address, as it says itself."""
    from distributed import Security
    from distributed.core import rpc

    how = Security().get_connection_args("client")
    async with rpc(address, timeout=_CONNECTING, connection_args=how) as there:
        return str((await there.identity())["type"])
