"""Adapter: something small to learn (LoRA) beside a model that stays as it is."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import Any, Iterator, Sequence

import numpy as np

from . import _ffi
from ._arrays import show
from ._library import Handle, Native, array_of, as_dict, create, fill_bytes, lib, native_of, path, struct
from .model import Model


class AdapterWeights(Mapping[str, np.ndarray]):
    """An adapter's tensors by name, "….q_proj.lora_A.weight": read-only arrays over its own memory."""

    def __init__(self, native: Native) -> None:
        self._native = native
        count = lib.mm_adapter_tensor_count(native)
        self._index = {fill_bytes(lib.mm_adapter_name, native, i)[:-1].decode(): i for i in range(count)}

    def __getitem__(self, name: str) -> np.ndarray:
        view = _ffi.mm_view()
        lib.mm_adapter_tensor(self._native, self._index[name], ctypes.byref(view))
        return show(view, self._native)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


class Adapter(Handle):
    """Two narrow matrices beside each of a model's projections that `targets` choose.

        adapter = Adapter(model, rank=8, targets="q_proj,v_proj")
        with Context(model, train=True, adapter=adapter) as context: …      gradients of the adapter alone
        adapter.save("out/lora")                                            as PEFT lays it out
    """

    def __init__(self, model: Model, **options: Any) -> None:
        """`options`: targets, rank, alpha, dropout, seed."""
        wanted = struct(_ffi.mm_adapter_options, **options)
        self._handle = create(_ffi.mm_adapter, lib.mm_adapter_create, lib.mm_adapter_free, model, ctypes.byref(wanted))

    @classmethod
    def load(cls, model: Model, where: str | os.PathLike[str]) -> Adapter:
        """One that was saved, by this library or by PEFT; or a safetensors file with MiniMind's names."""
        return cls._wrap(create(_ffi.mm_adapter, lib.mm_adapter_load, lib.mm_adapter_free, model, path(where)))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write adapter_config.json and adapter_model.safetensors."""
        lib.mm_adapter_save(self, path(directory))

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with, or what its file said."""
        out, native = struct(_ffi.mm_adapter_options), self._native   # whose string is lent
        lib.mm_adapter_describe(native, ctypes.byref(out))
        return {**as_dict(out), "targets": out.targets.decode()}

    @property
    def parameters(self) -> int:
        """How many numbers are in it."""
        return lib.mm_adapter_count_params(self)

    @property
    def weights(self) -> AdapterWeights:
        """Every tensor by name, without copying, for reading."""
        return AdapterWeights(self._native)

    @contextmanager
    def writing(self, name: str) -> Iterator[np.ndarray]:
        """One tensor for writing, in place."""
        native, view = self._native, _ffi.mm_view()
        lib.mm_adapter_write(native, AdapterWeights(native)._index[name], ctypes.byref(view))
        try:
            yield show(view, native, writable=True)
        finally:
            lib.mm_adapter_written(native)


def chosen(adapters: Sequence[Adapter], weights: Sequence[float] | None) -> tuple[Any, Any, int]:
    """Adapters and what each counts, as C takes them; the array holds the adapters."""
    count = len(adapters)
    if weights is not None and len(weights) != count:
        raise ValueError(f"{count} adapters and {len(weights)} weights")
    natives = [native_of(_ffi.mm_adapter, adapter) for adapter in adapters]
    handles = array_of(ctypes.POINTER(_ffi.mm_adapter), [native._as_parameter_ for native in natives], "adapters")
    handles.held = natives
    return handles, None if weights is None else array_of(ctypes.c_float, weights, "weights"), count


def merged(model: Model, adapters: Sequence[Adapter], weights: Sequence[float] | None = None) -> Model:
    """A second model that has taken adapters into its weights."""
    made = Model._wrap(create(_ffi.mm_model, lib.mm_adapter_merge, lib.mm_model_free, model, *chosen(adapters, weights)))
    made.tokenizer = model.tokenizer
    return made
