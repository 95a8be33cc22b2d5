"""Machine code on disk, for a process that compiles what another one has compiled.

Numba asks a cache before it compiles a function, and gives it the result. Its own cache first
registers all that Numba could compile with, which takes longer than all else in a warm process.
Machine code needs none of it but the functions that it calls, and those are looked up by name.
What Numba would have registered, it registers before it compiles anything.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter
from typing import Any

from llvmlite import binding as llvm
from numba.core.caching import _Cache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys
from pytensor.graph.fg import FunctionGraph
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from scanopt_cli.loop.codegen.functions import compile_directly, writing_of
from scanopt_cli.loop.codegen.keys import PREFIX
from scanopt_cli.store import Store


@dataclass(slots=True)
class CodeSeconds:
    """How long the machine code of one function took.

    Attributes
    ----------
    reading
        Seconds in which it was read from disk.
    writings
        Seconds in which its code was written, for each signature.
    compilations
        What Numba notes of each compilation, its times among it.
    """

    reading: float = 0.0
    writings: list[float] = field(default_factory=list)
    compilations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def writing(self) -> float:
        """Seconds in which its code was written."""
        return sum(self.writings)

    @property
    def llvm(self) -> float:
        """Seconds in which LLVM compiled it."""
        return self._total("llvm_lock")

    @property
    def numba(self) -> float:
        """Seconds that Numba took besides."""
        return max(0.0, self._total("compiler_lock") - self.llvm - self.writing)

    def _total(self, name: str) -> float:
        return sum(float(noted.get("timers", {}).get(name, 0.0)) for noted in self.compilations)


type Watch = Callable[[float | None], None]
"""Called before Numba compiles a function, with ``None``, and then with how long it took."""


def keep_code(
    function: Any, fgraph: FunctionGraph, store: Store | None, watch: Watch
) -> CodeSeconds:
    """Let what Numba compiles for a graph be kept in a store, and read from there.

    Parameters
    ----------
    function
        What PyTensor's linker made. Nothing is kept of one that is not Numba's.
    fgraph
        The graph that it is made of.
    store
        Where the machine code is kept, if it is that of a loop, which `functions` writes. ``None``
        if it is kept nowhere but in PyTensor's own cache.
    watch
        Called when the function is compiled.

    Returns
    -------
    What the function will take to be compiled.
    """
    seconds = CodeSeconds(writings=writing_of(fgraph))
    if isinstance(function, Dispatcher):
        dispatcher: Any = function
        compile_directly(dispatcher, fgraph)
        key = CACHED_SRC_FUNCTIONS.get(function.py_func, "")
        is_kept = key.startswith(PREFIX) and hasattr(dispatcher._cache, "_impl")
        kept_in = store if is_kept else None
        dispatcher._cache = KeptCode(dispatcher._cache, kept_in, key, seconds, watch)
    return seconds


class KeptCode(_Cache):
    """The machine code of one function, for each signature that it is called with.

    Parameters
    ----------
    own
        The cache that Numba would use. It knows how code is taken apart and put together, and is
        used if there is no store.
    store
        Where the code is kept.
    key
        What tells the function from all others.
    seconds
        What the function takes to be compiled, which is counted here.
    watch
        Called when it is compiled.
    """

    def __init__(
        self, own: Any, store: Store | None, key: str, seconds: CodeSeconds, watch: Watch
    ) -> None:
        self._watch = watch
        self._began = 0.0
        self._own = own
        self._store = store
        self._key = key
        self._seconds = seconds
        self._is_enabled = True

    @property
    def cache_path(self) -> Any:
        """The directory that it is kept in."""
        return self._own.cache_path if self._store is None else str(self._store.directory)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled for a signature; ``None`` if nothing was."""
        began = perf_counter()
        if self._store is None:
            found = self._own.load_overload(sig, target_context)
        else:
            found = self._read(self._store, sig, target_context) if self._is_enabled else None
        if found is not None:
            self._seconds.reading += perf_counter() - began
        else:
            self._began = perf_counter()
            self._watch(None)
        return found

    def _read(self, store: Store, sig: Any, target_context: Any) -> Any:
        key = self._name(sig, target_context.codegen())
        content = store.get(key)
        if content is None:
            return None
        with suppress(Exception):  # of another version, say: it is compiled again
            symbols, data = pickle.loads(content)
            rtsys.initialize(target_context)
            if all(llvm.address_of_symbol(symbol) for symbol in symbols):
                found = self._own._impl.rebuild(target_context, data)
                # Code of another signature would be read again by each call.
                if found.signature.args == tuple(sig):
                    return found
        store.discard(key)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, unless Numba says that it is of this process only."""
        self._watch(perf_counter() - self._began)
        if isinstance(data.metadata, dict):
            self._seconds.compilations.append(data.metadata)
        if self._store is None:
            self._own.save_overload(sig, data)
        elif self._is_enabled:
            with suppress(Exception):  # whatever may not be kept, the function is compiled
                if self._own._impl.check_cachable(data):
                    content = pickle.dumps((_called(data.library), self._own._impl.reduce(data)))
                    self._store.put(self._name(sig, data.codegen), content)

    def enable(self) -> None:
        """Let code be read and kept."""
        self._own.enable()
        self._is_enabled = True

    def disable(self) -> None:
        """Let no code be read or kept."""
        self._own.disable()
        self._is_enabled = False

    def flush(self) -> None:
        """Let Numba's own cache forget what it holds; `scanopt cache` clears the store."""
        self._own.flush()

    def _name(self, sig: Any, codegen: Any) -> str:
        # A tuple of all arguments and one of the caller's are called the same.
        kinds = [(type(kind).__qualname__, str(kind)) for kind in sig]
        parts = self._key, kinds, codegen.magic_tuple()
        return f"code-{sha256(repr(parts).encode()).hexdigest()}"


def _called(library: Any) -> list[str]:
    """Return the functions that code calls in the process that it is in.

    LLVM ends the process if there is no such function, so it is looked for before.
    """
    module = library._final_module
    named = (*module.functions, *module.global_variables)
    declared = (value.name for value in named if value.is_declaration)
    return [name for name in declared if not name.startswith("llvm.")]
