"""Between numpy and the library: views that hold their owner, and checked arguments."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence, Union

import numpy as np

from . import _ffi
from .errors import InternalError, UnsupportedError

IntArray = Union[Sequence[int], Sequence[Sequence[int]], np.ndarray]

# numpy has no bfloat16: its bits are shown as they are.
DTYPES = {_ffi.MM_F32: "<f4", _ffi.MM_BF16: "<u2", _ffi.MM_F16: "<f2", _ffi.MM_I32: "<i4", _ffi.MM_I64: "<i8"}


class Lent:
    """Memory of the library, as numpy asks for it; the array that shows it holds this, and so its owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: Any, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...],
                 writable: bool) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "data": (address, not writable), "typestr": dtype, "shape": shape,
                                    "strides": strides}


def show(view: Any, owner: Any, writable: bool = False) -> np.ndarray | None:
    """An array over an mm_view, without copying; None for an empty view."""
    if not view.data:
        return None
    if view.dtype in (_ffi.MM_Q8_0, _ffi.MM_Q4_0):
        raise UnsupportedError("numpy has no array of weights in blocks: Model.cast(MM_F32) makes numbers of them")
    dtype = DTYPES.get(view.dtype)
    if dtype is None:
        raise InternalError(f"a view of dtype {view.dtype}, which this package does not know")
    size = np.dtype(dtype).itemsize
    shape = tuple(view.shape[:view.rank])
    strides = tuple(step * size for step in view.strides[:view.rank])
    return np.asarray(Lent(owner, view.data, dtype, shape, strides, writable))


def copied(pointer: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """A copy of an array that is lent only for a while; None for NULL."""
    return np.ctypeslib.as_array(pointer, shape).copy() if pointer else None


def integers(values: IntArray, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A contiguous int32 array; refuses other kinds of numbers, what does not fit 32 bits, and another shape."""
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iub":
        raise TypeError(f"{name}: integers are needed, not {array.dtype}")
    if array.dtype != np.int32:
        limits = np.iinfo(np.int32)
        if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
            raise ValueError(f"{name}: a number does not fit 32 bits")
    return shaped(np.ascontiguousarray(array, dtype=np.int32), name, shape)


def floats(values: Any, name: str, shape: tuple[int, ...] | None = None, dtype: Any = np.float32) -> np.ndarray:
    """A contiguous array of floats of the shape given."""
    return shaped(np.ascontiguousarray(values, dtype=dtype), name, shape)


def shaped(array: np.ndarray, name: str, shape: tuple[int, ...] | None) -> np.ndarray:
    """The array, if it has that shape: C reads as many elements as it is told."""
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; {shape} is needed")
    return array


def pointer(array: np.ndarray | None) -> Any:
    """For a call or a struct; the array must outlive it."""
    if array is None:
        return None
    kind = {"int32": ctypes.c_int32, "float32": ctypes.c_float, "float64": ctypes.c_double}[array.dtype.name]
    return array.ctypes.data_as(ctypes.POINTER(kind))
