"""Finds libminimind, declares its functions, and turns its statuses into exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
import threading
from typing import Any, Callable, Iterator

from . import _ffi
from .errors import BY_STATUS, InternalError, LibraryNotFoundError, StateError

# What these declarations were made for; a library of another major version has another ABI.
MAJOR, MINOR = 0, 1


def candidates() -> Iterator[str]:
    """Where the library may be, best first: MINIMIND_LIBRARY, the system, the build trees of a checkout."""
    named = os.environ.get("MINIMIND_LIBRARY")
    if named:
        yield named
        return
    found = ctypes.util.find_library("minimind")
    if found:
        yield found
    root = pathlib.Path(__file__).resolve().parents[3]
    for tree in sorted(root.glob("build*")):
        if (tree / "libminimind.so").exists():
            yield str(tree / "libminimind.so")


def open_library(path: str) -> ctypes.CDLL:
    """Open one file. CDLL lets go of the interpreter's lock for as long as a call runs."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise LibraryNotFoundError(f"{path}: {error}") from None
    try:
        library.mm_version.restype = ctypes.c_uint32
        version = library.mm_version()
    except AttributeError:
        raise LibraryNotFoundError(f"{path} is not libminimind: it has no mm_version()") from None
    if version >> 16 != MAJOR or (version >> 8 & 0xFF) < MINOR:
        raise LibraryNotFoundError(f"{path} is version {version >> 16}.{version >> 8 & 0xFF}; "
                                   f"this package needs {MAJOR}.{MINOR} or a later {MAJOR}.x")
    for name, (result, arguments) in _ffi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibraryNotFoundError(f"{path} has no {name}(): it is older than this package") from None
        function.restype = result
        function.argtypes = arguments
        if result is _ffi.mm_status:
            function.errcheck = raise_on_failure
    return library


def raise_on_failure(result: Any, function: Any, arguments: Any) -> None:
    """ctypes' errcheck: runs on the thread of the call, whose error the library keeps."""
    if result.value == _ffi.MM_OK:
        return
    message = lib.mm_last_error().decode("utf-8", "replace")
    raise BY_STATUS.get(result.value, InternalError)(message)


class Library:
    """The library's functions as attributes; it is opened when the first is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.path: str | None = None

    def open(self, path: str | os.PathLike[str] | None = None) -> str:
        """Open the library at `path`, or where it is found, once for the process. Returns its path."""
        with self._lock:
            if self.path is not None:
                if path is not None and os.fspath(path) != self.path:
                    raise LibraryNotFoundError(f"{self.path} is in use already")
                return self.path
            tried = [os.fspath(path)] if path is not None else list(candidates())
            if not tried:
                raise LibraryNotFoundError("libminimind is not installed; name its file in MINIMIND_LIBRARY, "
                                           "or call minimind.load_library(path) first")
            problems = []
            for one in tried:
                try:
                    library = open_library(one)
                except LibraryNotFoundError as error:
                    problems.append(str(error))
                    continue
                for name in _ffi.FUNCTIONS:
                    setattr(self, name, getattr(library, name))
                self.path = one
                return one
            raise LibraryNotFoundError("; ".join(problems))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("mm_"):
            raise AttributeError(name)
        self.open()
        return object.__getattribute__(self, name)


lib = Library()


class Native:
    """A C handle and the function that takes it back. Calls are given this object, so that it outlives them; arrays
    that show its memory hold it too."""

    __slots__ = ("_as_parameter_", "_free", "keep", "__weakref__")

    def __init__(self, pointer: Any, free: Callable[[Any], None], keep: Any = None) -> None:
        self._as_parameter_ = pointer
        self._free = free
        self.keep = keep

    def __del__(self) -> None:
        self._free(self._as_parameter_)


class Handle:
    """What all objects of the library share: close(), `with`, and a StateError for use after that.

    close() only lets go: what still stands on a handle (a context on its model, an array on its memory) keeps it alive,
    so any order is safe."""

    _handle: Native | None = None

    @property
    def _native(self) -> Native:
        if self._handle is None:
            raise StateError(f"this {type(self).__name__} is closed")
        return self._handle

    @classmethod
    def _wrap(cls, native: Native) -> Any:
        self = cls.__new__(cls)
        self._handle = native
        return self

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle is None

    def close(self) -> None:
        """Give the handle back; a second time does nothing."""
        self._handle = None

    def __enter__(self) -> Any:
        self._native
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def create(kind: Any, function: Callable[..., None], free: Callable[[Any], None], *arguments: Any,
           keep: Any = None) -> Native:
    """Call a function whose last argument receives a new handle of `kind`."""
    out = ctypes.POINTER(kind)()
    function(*arguments, ctypes.byref(out))
    return Native(out, free, keep)


def struct(kind: Any, /, **fields: Any) -> Any:
    """A struct with the library's own defaults and then `fields`; None leaves a default."""
    made = kind()
    getattr(lib, kind.__name__ + "_init")(ctypes.byref(made), ctypes.sizeof(made))
    known = {entry[0] for entry in kind._fields_} - {"struct_size", "reserved"}
    for name, value in fields.items():
        if name not in known:
            raise TypeError(f"{kind.__name__} has no field {name!r}; it has {', '.join(sorted(known))}")
        if value is not None:
            setattr(made, name, text(value) if isinstance(value, str) else value)
    return made


def as_dict(made: Any) -> dict[str, Any]:
    """The fields of a flat result struct."""
    return {name: getattr(made, name) for name, *_ in made._fields_ if name not in ("struct_size", "reserved")}


def text(value: str) -> bytes:
    """A C string. NUL would end it early, so it is refused."""
    data = value.encode("utf-8")
    if b"\0" in data:
        raise ValueError(f"NUL in {value!r}")
    return data


def path(value: str | os.PathLike[str]) -> bytes:
    """A file name as C has it."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"NUL in the path {value!r}")
    return data


def fill(function: Callable[..., None], *arguments: Any, kind: Any = ctypes.c_char) -> Any:
    """Call a function that writes at most `capacity` elements and tells how many it needs; returns an array of them."""
    needed = ctypes.c_size_t()
    function(*arguments, None, 0, ctypes.byref(needed))
    room = (kind * max(1, needed.value))()
    if needed.value:
        function(*arguments, room, needed.value, ctypes.byref(needed))
    return room, needed.value


def fill_bytes(function: Callable[..., None], *arguments: Any) -> bytes:
    """fill() for bytes."""
    room, count = fill(function, *arguments)
    return room.raw[:count]


def bytes_at(pointer: Any, length: int) -> bytes:
    """`length` bytes at a char pointer of either ctypes kind, NUL included."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    return ctypes.string_at(address, length) if address else b""
