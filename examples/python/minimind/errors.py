"""Exceptions: one class for each status of the library, each carrying the library's own message."""
from __future__ import annotations

from . import _ffi


class MinimindError(Exception):
    """A call that the library refused or could not finish; str() is what mm_last_error() said."""

    status = _ffi.MM_ERR_INTERNAL
    """The MM_ERR_… number."""


class ArgumentError(MinimindError, ValueError):
    """MM_ERR_ARG: an argument is out of its range."""

    status = _ffi.MM_ERR_ARG


class OutOfMemoryError(MinimindError, MemoryError):
    """MM_ERR_MEMORY: memory ran out."""

    status = _ffi.MM_ERR_MEMORY


class FileError(MinimindError, OSError):
    """MM_ERR_IO: a file could not be opened, read, written, synced or renamed."""

    status = _ffi.MM_ERR_IO


class FormatError(MinimindError, ValueError):
    """MM_ERR_FORMAT: a file or text is damaged or contradicts itself."""

    status = _ffi.MM_ERR_FORMAT


class UnsupportedError(MinimindError, NotImplementedError):
    """MM_ERR_UNSUPPORTED: well-formed, but something the library does not do."""

    status = _ffi.MM_ERR_UNSUPPORTED


class StateError(MinimindError, RuntimeError):
    """MM_ERR_STATE: the call does not fit what was done before it; also any use of a closed handle."""

    status = _ffi.MM_ERR_STATE


class NumericError(MinimindError, ArithmeticError):
    """MM_ERR_NUMERIC: a number came out as NaN or infinite where it must not be."""

    status = _ffi.MM_ERR_NUMERIC


class CancelledError(MinimindError):
    """MM_ERR_CANCELLED: cancelled, or a callback asked to stop."""

    status = _ffi.MM_ERR_CANCELLED


class InternalError(MinimindError):
    """MM_ERR_INTERNAL: a bug in the library."""

    status = _ffi.MM_ERR_INTERNAL


class LibraryNotFoundError(ImportError):
    """libminimind is not where it was looked for, or does not fit this package."""


BY_STATUS = {kind.status: kind for kind in (
    ArgumentError, OutOfMemoryError, FileError, FormatError, UnsupportedError, StateError, NumericError, CancelledError,
    InternalError)}
