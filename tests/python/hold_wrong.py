"""Calls every function of the library wrongly; test_held_wrong.py runs it in a process of its own, which may crash.

    hold_wrong.py LIBRARY DIRECTORY     prints each function's name before its calls; what it finds, behind "not ok"

First everything is NULL and 0. Then one argument at a time is bad, beside real handles and zeroed memory: a NULL, a struct of
another size, a negative number. A call may go well; where it fails, it must say why.
"""
from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Iterator

import minimind
from minimind import _ffi

# For these NULL is as good as anything, and other values are the whole process's.
PROCESS_WIDE = {"mm_set_allocator", "mm_set_log", "mm_set_last_error"}
ODD_SIZES = (0, 1, 7, 65537, 2**64 - 1)
ROOM = 1 << 16


def is_pointer(kind: type) -> bool:
    return issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr)) or kind in (c_char_p, c_void_p)


def target(kind: type) -> type | None:
    return kind._type_ if issubclass(kind, ctypes._Pointer) else None


class Library:
    """The functions as they are, without the exceptions of the package."""

    def __init__(self, path: str) -> None:
        self.file = ctypes.CDLL(path)
        self.file.mm_last_error.restype = c_char_p
        self.functions = {name: (ctypes.CFUNCTYPE(result, *kinds)((name, self.file)), result, kinds)
                          for name, (result, kinds) in _ffi.FUNCTIONS.items()}
        self.told = ""

    def call(self, name: str, arguments: list[Any]) -> int:
        """The status; 0 of functions that have none. A failure without a message is told."""
        function, result, _ = self.functions[name]
        self.file.mm_set_last_error(0, None)
        value = function(*arguments)
        if result is not _ffi.mm_status or value.value == _ffi.MM_OK:
            return 0
        if not self.file.mm_last_error() or value.value not in range(1, 10):
            print(f"not ok {name}{tuple(arguments)} is {value.value}, and says nothing")
        return value.value


def nothing(kind: type) -> Any:
    """NULL or 0."""
    if issubclass(kind, ctypes._CFuncPtr):
        return kind()
    return None if is_pointer(kind) else kind(0)


class Things:
    """Something good for each kind of argument."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handles: dict[type, Any] = {}
        self.kept: list[Any] = []
        self.make()
        self.needed = len(self.kept)

    def made(self, name: str, *arguments: Any) -> Any:
        """The handle that a function gives through its last argument."""
        handle = target(self.library.functions[name][2][-1])()
        status = self.library.call(name, [*arguments, byref(handle)])
        if status != 0:
            raise RuntimeError(f"{name}: {self.library.file.mm_last_error().decode()}")
        self.handles[type(handle)] = handle
        return handle

    def default(self, kind: type, **fields: Any) -> Any:
        value = kind()
        self.library.call(kind.__name__ + "_init", [byref(value), c_size_t(ctypes.sizeof(kind))])
        for name, field in fields.items():
            setattr(value, name, field)
        self.kept.append(value)
        return value

    def make(self) -> None:
        with open("rows.jsonl", "w", encoding="utf-8") as file:
            file.write('{"text": "to be"}\n{"text": "or not"}\n')
        set_int = self.library.functions["mm_config_set_int"][0]
        config = self.made("mm_config_create", b"minimind2-small")
        for key, value in (("hidden_size", 32), ("num_hidden_layers", 1), ("num_attention_heads", 2), ("vocab_size", 259),
                           ("num_key_value_heads", 1), ("max_position_embeddings", 64)):
            set_int(config, key.encode(), value)
        model = self.made("mm_model_create", config, 1)
        self.kept.append(next_text := _ffi.mm_text_fn(lambda user, text, length: 0))
        options = self.default(_ffi.mm_tokenizer_train_options, vocab_size=259, next_text=next_text)
        tokenizer = self.made("mm_tokenizer_train", byref(options))
        self.made("mm_decoder_create", tokenizer, 0)
        self.made("mm_context_create", model, byref(self.default(
            _ffi.mm_context_options, mode=_ffi.MM_TRAIN, max_batch=2, max_length=16, threads=1, outputs=31)))
        self.made("mm_cache_create", model, 1, 16, _ffi.MM_F32)
        self.made("mm_adapter_create", model, None)
        self.made("mm_adamw_create", model, None)
        self.made("mm_value_head_create", model, None)
        dataset = self.made("mm_dataset_open", b"rows.jsonl")
        loader = self.made("mm_loader_create", dataset, tokenizer,
                           byref(self.default(_ffi.mm_loader_options, batch=2, max_length=16, workers=0)))
        self.made("mm_trainer_create", model, loader, tokenizer,
                  byref(self.default(_ffi.mm_trainer_options, threads=1, max_steps=1)))
        self.made("mm_chat_create")
        self.made("mm_chat_parse", b"an answer", c_size_t(9), 0)
        self.made("mm_report_create", b"report", None)

    def good(self, kind: type) -> Any:
        inner = target(kind)
        if kind in self.handles:
            return self.handles[kind]
        if f"{getattr(inner, '__name__', '')}_init" in _ffi.FUNCTIONS:
            return ctypes.pointer(self.default(inner))
        if kind is c_char_p:
            return b"place"
        if kind is c_void_p or inner is not None:
            memory = ctypes.create_string_buffer(ROOM)
            self.kept.append(memory)
            return ctypes.cast(memory, kind)
        return nothing(kind) if is_pointer(kind) else kind(1)


def wrong(things: Things, kinds: list[type]) -> Iterator[list[Any]]:
    """Arguments of which one is bad."""
    for i, kind in enumerate(kinds):
        bad: list[Any] = []
        if is_pointer(kind):
            bad.append(nothing(kind))
        elif kind in (c_int32, c_int64, c_double):
            bad += [kind(-1), kind(0)]
        inner = target(kind)
        if inner is not None and f"{inner.__name__}_init" in _ffi.FUNCTIONS:
            bad += [ctypes.pointer(things.default(inner, struct_size=size)) for size in ODD_SIZES]
        for value in bad:
            arguments = [things.good(one) for one in kinds]
            arguments[i] = value
            yield arguments


def main(path: str, place: str) -> None:
    library = Library(path)
    os.chdir(place)
    for name, (result, kinds) in _ffi.FUNCTIONS.items():
        print(name, "of nothing", flush=True)
        status = library.call(name, [nothing(kind) for kind in kinds])
        if result is _ffi.mm_status and kinds and status != _ffi.MM_ERR_ARG and name not in PROCESS_WIDE:
            print(f"not ok {name} of nothing is {status}")
    things = Things(library)
    for name, (_, kinds) in _ffi.FUNCTIONS.items():
        if name in PROCESS_WIDE or name.endswith(("_free", "_init")):
            continue
        print(name, flush=True)
        for arguments in wrong(things, kinds):
            library.call(name, arguments)
        del things.kept[things.needed:]
    print("all were called")


if __name__ == "__main__":
    main(*sys.argv[1:])
