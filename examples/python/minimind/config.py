"""Config: an architecture, field by field, and what it costs before it is built."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from . import _ffi
from ._library import Handle, as_dict, create, document, fill_bytes, lib, path, struct, text, whole


@dataclass(frozen=True)
class Key:
    """One row of the field table: what a Config accepts under this name."""

    name: str
    type: type
    description: str
    minimum: float
    maximum: float


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a config's layout; `module` is an MM_MODULE_… number, -1 means none."""

    name: str
    shape: tuple[int, ...]
    elements: int
    module: int
    layer: int
    expert: int


_TYPES = {_ffi.MM_TYPE_INT: int, _ffi.MM_TYPE_FLOAT: float, _ffi.MM_TYPE_BOOL: bool, _ffi.MM_TYPE_STRING: str}
_keys: dict[str, Key] = {}


def config_keys() -> dict[str, Key]:
    """Every key that a Config knows, by name."""
    if not _keys:
        made = {}
        for i in range(lib.mm_config_key_count()):
            row = struct(_ffi.mm_config_key)
            lib.mm_config_key_get(i, ctypes.byref(row))
            name = row.name.decode()
            made[name] = Key(name, _TYPES[row.type], row.description.decode(), row.minimum, row.maximum)
        _keys.update(made)   # at once: other threads run while C does
    return _keys


def presets() -> list[str]:
    """The names that Config() takes."""
    return [lib.mm_preset_name(i).decode() for i in range(lib.mm_preset_count())]


class Config(Handle):
    """The fields of a config.json, with the rules for those that were never set.

        config = Config("minimind2-small", vocab_size=6400, num_hidden_layers=4)
        config["rope_scaling.factor"] = 4.0
    """

    def __init__(self, preset: str | None = None, **fields: Any) -> None:
        """A preset (see presets()), then fields by name."""
        self._handle = create(_ffi.mm_config, lib.mm_config_create, lib.mm_config_free,
                              None if preset is None else text(preset))
        self.update(fields)

    @classmethod
    def load(cls, where: str | os.PathLike[str]) -> Config:
        """Read a config.json, or that of a directory."""
        return cls._wrap(create(_ffi.mm_config, lib.mm_config_load, lib.mm_config_free, path(where)))

    @classmethod
    def from_json(cls, json: str | bytes) -> Config:
        """Read a config.json's text."""
        data = document(json, "json")
        return cls._wrap(create(_ffi.mm_config, lib.mm_config_load_memory, lib.mm_config_free, data, len(data)))

    def save(self, where: str | os.PathLike[str]) -> None:
        """Write a config.json, replacing it in one step; a directory must be there."""
        lib.mm_config_save(self, path(where))

    def copy(self) -> Config:
        """A second config with the same fields."""
        return Config._wrap(create(_ffi.mm_config, lib.mm_config_copy, lib.mm_config_free, self))

    def validate(self) -> None:
        """Raise what is wrong with the fields taken together."""
        lib.mm_config_validate(self)

    def update(self, fields: dict[str, Any]) -> None:
        """Set several fields."""
        for name, value in fields.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        key = config_keys().get(name)
        if isinstance(value, str):
            lib.mm_config_set_string(self, text(name), text(value))
        elif isinstance(value, (bool, np.bool_)):
            lib.mm_config_set_bool(self, text(name), value)
        elif isinstance(value, float) or (key and key.type is float):
            lib.mm_config_set_float(self, text(name), float(value))
        else:
            if not hasattr(value, "__index__"):
                raise TypeError(f"{name}: a number, a bool or a str is needed, not {type(value).__name__}")
            lib.mm_config_set_int(self, text(name), whole(ctypes.c_int64, value, name))

    def __getitem__(self, name: str) -> Any:
        """The value in force; StateError where the key has none in this family."""
        key = config_keys().get(name)
        if key is None:
            raise KeyError(name)
        if key.type is str:
            return fill_bytes(lib.mm_config_get_string, self, text(name))[:-1].decode()
        kind, function = {int: (ctypes.c_int64, lib.mm_config_get_int), float: (ctypes.c_double, lib.mm_config_get_float),
                          bool: (ctypes.c_int32, lib.mm_config_get_bool)}[key.type]
        out = kind()
        function(self, text(name), ctypes.byref(out))
        return key.type(out.value)

    def __delitem__(self, name: str) -> None:
        """Let the key follow its rule again."""
        lib.mm_config_unset(self, text(name))

    def __iter__(self) -> Iterator[str]:
        return iter(config_keys())

    def parameters(self) -> dict[str, int]:
        """Parameters by module, with "total" and "active"."""
        out = struct(_ffi.mm_param_count)
        lib.mm_count_params(self, ctypes.byref(out))
        return as_dict(out)

    def layout(self) -> list[TensorInfo]:
        """Every tensor, in the order in which models and gradients have them."""
        count = ctypes.c_int64()
        lib.mm_layout_count(self, ctypes.byref(count))
        return [self._tensor(i) for i in range(count.value)]

    def _tensor(self, index: int) -> TensorInfo:
        info = struct(_ffi.mm_tensor_info)
        lib.mm_layout_get(self, index, ctypes.byref(info))
        return TensorInfo(info.name.decode(), tuple(info.shape[:info.rank]), info.elements, info.module, info.layer,
                          info.expert)

    def estimate_memory(self, **workload: Any) -> dict[str, int]:
        """Bytes, part by part, for the fields of mm_workload: mode, max_batch, max_length, optimizer…"""
        wanted, out = struct(_ffi.mm_workload, **workload), struct(_ffi.mm_memory)
        lib.mm_estimate_memory(self, ctypes.byref(wanted), ctypes.byref(out))
        return as_dict(out)

    def estimate_flops(self, **workload: Any) -> dict[str, float]:
        """Floating-point operations per token for the fields of mm_workload."""
        wanted, out = struct(_ffi.mm_workload, **workload), struct(_ffi.mm_flops)
        lib.mm_estimate_flops(self, ctypes.byref(wanted), ctypes.byref(out))
        return as_dict(out)
