"""The library as a whole: where it is, its version, its memory, its log."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from . import _ffi
from ._library import as_dict, lib, struct

_log: Any = None   # the callback that C holds


def load_library(path: str | os.PathLike[str] | None = None) -> str:
    """Open libminimind and return its path. Without this it is opened at first use: the file named by the environment
    variable MINIMIND_LIBRARY, else the system's, else that of a build tree of this checkout."""
    return lib.open(path)


def version() -> str:
    """The version of the library that runs."""
    return lib.mm_version_string().decode()


def memory_usage() -> dict[str, int]:
    """Bytes that the library holds: current, peak; and the count of allocations."""
    out = struct(_ffi.mm_memory_usage)
    lib.mm_memory_get_usage(ctypes.byref(out))
    return as_dict(out)


def memory_reset_peak() -> None:
    """Let the peak start again from what is held now."""
    lib.mm_memory_reset_peak()


def set_log(log: Callable[[int, str], Any] | None, level: int = _ffi.MM_LOG_INFO) -> None:
    """Say where the library's remarks go: log(level, message), from any thread; None for silence. Not while any other
    call runs. What `log` itself raises goes to sys.unraisablehook, and the call goes on."""
    global _log

    def told(user: Any, severity: int, message: bytes) -> None:
        log(severity, message.decode("utf-8", "replace"))

    made = _ffi.mm_log_fn(told) if log is not None else _ffi.mm_log_fn()
    lib.mm_set_log(made, None, level)
    _log = made
