"""Finds libminimind, declares its functions, and turns its statuses into exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import operator
import os
import pathlib
import reprlib
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Sequence

import numpy as np

from . import _ffi
from ._caught import Caught
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
    for root in pathlib.Path(__file__).resolve().parents[3:4]:
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
    del function, arguments   # a callback among them would hold what it works with for as long as the exception is kept
    raise BY_STATUS.get(result.value, InternalError)(message)


def _range(kind: Any) -> tuple[int, int]:
    bits = 8 * ctypes.sizeof(kind)
    return (-1 << bits - 1, (1 << bits - 1) - 1) if kind(-1).value < 0 else (0, (1 << bits) - 1)


# What fits a C type of whole numbers.
WHOLE = {kind: _range(kind) for kind in (ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t)}
REAL = (ctypes.c_float, ctypes.c_double)


def whole(kind: Any, value: Any, name: str) -> int:
    """A number of one of the kinds in WHOLE; ctypes would cut off what does not fit."""
    if isinstance(value, np.bool_):   # numpy warns where it is taken for a number; a bool is one
        value = bool(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise unfit(name, "an int", value) from None
    least, most = WHOLE[kind]
    if not least <= number <= most:
        raise ValueError(f"{name}: {number} is not in [{least}, {most}]")
    return number


def array_of(kind: Any, values: Sequence[Any], name: str) -> Any:
    """Numbers as a C array, with room for one where there are none."""
    return (kind * max(1, len(values)))(*[whole(kind, value, name) if kind in WHOLE else value for value in values])


# One call at a time: two would write to the same memory. Those in BESIDE may come beside another; those in WITHIN from within
# another, on its thread: on_step and on_row come between two uses of the loader or report.
ALONE = (_ffi.mm_context, _ffi.mm_loader, _ffi.mm_cache, _ffi.mm_trainer, _ffi.mm_chat, _ffi.mm_decoder, _ffi.mm_report,
         _ffi.mm_optimizer, _ffi.mm_value_head)
BESIDE = ("mm_cancel", "mm_context_kernels", "mm_loader_length", "mm_trainer_stop", "mm_trainer_progress", "mm_trainer_save")
WITHIN = ("mm_loader_tell", "mm_loader_get_stats", "mm_report_scalars", "mm_report_vector", "mm_report_text",
          "mm_report_fact", "mm_report_flush")


def checked(name: str, function: Any, kinds: list[Any]) -> Callable[..., Any]:
    """The function behind a look at its handles, at who else uses them, and at its numbers."""
    handles = [(i, kind._type_) for i, kind in enumerate(kinds) if opaque(kind)]
    numbers = [(i, kind) for i, kind in enumerate(kinds) if kind in WHOLE]
    alone = name not in BESIDE and any(ctypes.POINTER(kind) in kinds for kind in ALONE)
    within = name in WITHIN
    if name.endswith("_free") or not numbers and not handles:   # what takes back is called where no exception may come
        return function

    def call(*arguments: Any) -> Any:
        given = list(arguments)
        for i, kind in handles:   # first: a number may be an object whose __index__() closes one
            given[i] = native_of(kind, given[i])
        for i, kind in numbers:
            given[i] = whole(kind, given[i], name)
        natives = [one for one in given if isinstance(one, Native)] if alone else None
        if not natives:
            return function(*given)
        with Alone(*natives, within=within):
            return function(*given)

    call.__wrapped__ = function
    return call


class Library:
    """The library's functions as attributes; it is opened when the first is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.path: str | None = None

    def open(self, path: str | os.PathLike[str] | None = None) -> str:
        """Open the library at `path`, or where it is found, once for the process. Returns its path."""
        with self._lock:
            if self.path is not None:
                if path is not None and os.path.realpath(path) != os.path.realpath(self.path):
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
                for name, (_, kinds) in _ffi.FUNCTIONS.items():
                    setattr(self, name, checked(name, getattr(library, name), kinds))
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

    __slots__ = ("_as_parameter_", "_free", "keep", "users", "__weakref__")

    def __init__(self, kind: Any, free: Callable[[Any], None], keep: Any = None) -> None:
        """Of no handle yet: a function is given a reference to `_as_parameter_`, so that no exception can come between
        a new handle and its owner."""
        self._as_parameter_ = ctypes.POINTER(kind)()
        self._free = free
        self.keep = keep
        self.users: list[Any] = []   # calls that use it, or did: see Alone

    def __del__(self) -> None:
        if getattr(self, "_as_parameter_", None):   # unless a signal came before it had one
            self._free(self._as_parameter_)

    def __reduce__(self) -> Any:
        raise TypeError("a handle of the library can be neither copied nor pickled")


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
        with Caught():   # what a signal's handler raises within __del__ is lost
            self._handle = None

    def __enter__(self) -> Any:
        self._native
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled like a value")


class Alone:
    """`with` it a call uses handles that take one at a time, and nobody else does. Other handles, and None, may be among
    them. A function of the library does it by itself; with the pointers in them it is for a call whose result is lent.
    One of those in WITHIN goes on where its own thread's call has the handle."""

    def __init__(self, *handles: Native | Handle | None, within: bool = False) -> None:
        natives = [one._native if isinstance(one, Handle) else one for one in handles if one is not None]
        self.natives = [one for one in natives if isinstance(one, Native) and type(one._as_parameter_)._type_ in ALONE]
        self.running, self.within = threading.Lock(), within

    def __enter__(self) -> None:
        try:
            self.running.acquire()
            own = weakref.ref(self.running), threading.get_ident()
            for native in self.natives:
                native.users.append(own)
                self._stand_in_line(native)
        except BaseException:
            if self.running.locked():
                self.running.release()
            raise

    def _stand_in_line(self, native: Native) -> None:
        for user in tuple(native.users):   # in the order of their coming; the first that still runs has the handle
            lock = user[0]()
            if lock is self.running:
                return
            if lock is not None and lock.locked():
                if self.within and user[1] == threading.get_ident():
                    return
                kind = type(native._as_parameter_)._type_.__name__.removeprefix("mm_")
                raise StateError(f"the {kind} is in use: it takes one call at a time, and none from within that call")
            try:
                native.users.remove(user)
            except ValueError:   # another thread has
                pass

    @property
    def __exit__(self) -> Callable[..., Any]:
        return self.running.__exit__   # in C, where no signal's handler comes in between


def opaque(kind: Any) -> bool:
    """Whether it is a pointer to a handle."""
    of = getattr(kind, "_type_", None)
    return isinstance(of, type) and issubclass(of, ctypes.Structure) and not hasattr(of, "_fields_")


def native_of(kind: Any, value: Any, name: str | None = None) -> Any:
    """What a function is given for a handle of `kind`: an object of the library's, its Native, a pointer, or None."""
    native = value._native if isinstance(value, Handle) else value
    if native is not None and type(getattr(native, "_as_parameter_", native)) is not ctypes.POINTER(kind):
        noun = kind.__name__.removeprefix("mm_")
        raise unfit(name or noun, f"a minimind.{noun.title().replace('_', '')}", value)
    return native


def create(kind: Any, function: Callable[..., None], free: Callable[[Any], None], *arguments: Any,
           keep: Any = None) -> Native:
    """Call a function whose last argument receives a new handle of `kind`."""
    native = Native(kind, free, keep)
    function(*arguments, ctypes.byref(native._as_parameter_))
    return native


def struct(kind: Any, /, **fields: Any) -> Any:
    """A struct with the library's own defaults and then `fields`; None leaves a default. It holds the handles in it."""
    made = kind()
    getattr(lib, kind.__name__ + "_init")(ctypes.byref(made), ctypes.sizeof(made))
    kinds = {name: of for name, of, *_ in kind._fields_ if name not in ("struct_size", "reserved")}
    made.held = []
    for name, value in fields.items():
        if name not in kinds:
            raise TypeError(f"{kind.__name__} has no field {name!r}; it has {', '.join(sorted(kinds))}")
        if value is None:
            continue
        if opaque(kinds[name]):
            made.held.append(native_of(kinds[name]._type_, value, name))
            value = made.held[-1]._as_parameter_
        setattr(made, name, field(kinds[name], value, name))
    return made


def field(kind: Any, value: Any, name: str) -> Any:
    """What a field of a struct is set to. ctypes would take a number for an address, and C would read there."""
    if kind is ctypes.c_char_p:
        return text(value, name)
    if kind is ctypes.c_void_p and not isinstance(value, ctypes.c_void_p):
        raise unfit(name, "a c_void_p", value)
    if kind in WHOLE:
        return whole(kind, value, name)
    if kind in REAL and not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise unfit(name, "a float", value)
    return value


def as_dict(made: Any) -> dict[str, Any]:
    """The fields of a flat result struct."""
    return {name: getattr(made, name) for name, *_ in made._fields_ if name not in ("struct_size", "reserved")}


def unfit(name: str, needed: str, value: Any) -> TypeError:
    """What is raised for a value of another kind."""
    return TypeError(f"{name}: {needed} is needed, not {reprlib.repr(value)}, of type {type(value).__name__}")


def text(value: str | bytes, name: str = "a text") -> bytes:
    """A C string. NUL would end it early, so it is refused."""
    if not isinstance(value, (str, bytes)):
        raise unfit(name, "a str", value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    if b"\0" in data:
        raise ValueError(f"NUL in {value!r}")
    return data


def texts_of(values: Iterable[str | bytes], name: str) -> Iterable[str | bytes]:
    """Several texts. One by itself would be taken for its characters."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise unfit(name, "a list of str", values)
    return values


def c_strings(values: Iterable[str | bytes], name: str) -> tuple[Any, int]:
    """C strings in an array, and how many."""
    given = [text(value, name) for value in texts_of(values, name)]
    return (ctypes.c_char_p * max(1, len(given)))(*given), len(given)


def document(value: str | bytes, name: str) -> bytes:
    """A text whose length is told beside it. (bytes() of a number would be so many NULs.)"""
    if not isinstance(value, (str, bytes, bytearray, memoryview)):
        raise unfit(name, "a str or bytes", value)
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def path(value: str | os.PathLike[str]) -> bytes:
    """A file name as C has it."""
    data = os.fsencode(value)
    if b"\0" in data:
        raise ValueError(f"NUL in the path {value!r}")
    return data


def fill(function: Callable[..., None], *arguments: Any, kind: Any = ctypes.c_char) -> Any:
    """Call a function that writes at most `capacity` elements and tells how many it needs; returns an array of them."""
    arguments = tuple(one._native if isinstance(one, Handle) else one for one in arguments)
    needed, natives = ctypes.c_size_t(), [one for one in arguments if isinstance(one, Native)]
    given = [one._as_parameter_ if isinstance(one, Native) else one for one in arguments]
    with Alone(*natives):   # nobody changes what is written between the two calls
        function(*given, None, 0, ctypes.byref(needed))
        room = (kind * max(1, needed.value))()
        if needed.value:
            function(*given, room, needed.value, ctypes.byref(needed))
    return room, needed.value


def fill_bytes(function: Callable[..., None], *arguments: Any) -> bytes:
    """fill() for bytes."""
    room, count = fill(function, *arguments)
    return room.raw[:count]


def field_bytes(made: Any, name: str, length: int) -> bytes:
    """`length` bytes at a field of char pointers: read as ctypes reads it, it would end at a NUL."""
    address = ctypes.addressof(made) + getattr(type(made), name).offset
    return bytes_at(ctypes.c_void_p.from_address(address), length)


def bytes_at(pointer: Any, length: int) -> bytes:
    """`length` bytes at a char pointer of either ctypes kind, NUL included."""
    address = ctypes.cast(pointer, ctypes.c_void_p).value
    return ctypes.string_at(address, length) if address else b""
