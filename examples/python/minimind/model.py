"""Model: the weights of one config, as numpy sees them."""
from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from . import _ffi
from ._arrays import IntArray, show
from ._library import Handle, create, lib, path, struct, text, unfit
from .config import Config
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .generate import Cache


class Weights(Mapping[str, np.ndarray]):
    """A model's tensors by their Hugging Face names: read-only arrays over the model's own memory. An array keeps that
    memory alive. bfloat16 shows as its bits, uint16: Model.cast() makes float32 of it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._names = [info.name for info in model.config.layout()]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        view, native = _ffi.mm_view(), self._model._native
        lib.mm_model_find(native, text(name), ctypes.byref(view))
        return show(view, native)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Model(Handle):
    """A model, and the tokenizer that its directory brought, if any.

        model = Model.from_pretrained("out/model")
        for piece in model.generate("Once upon a time", max_new_tokens=100):
            print(piece, end="", flush=True)
    """

    tokenizer: Tokenizer | None = None

    def __init__(self, config: Config, seed: int = 0) -> None:
        """Random weights; the same seed gives the same ones."""
        self._handle = create(_ffi.mm_model, lib.mm_model_create, lib.mm_model_free, config, seed)

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike[str], *, map: bool = False, keep_dtype: bool = False) -> Model:
        """Load config.json and the weights of a Hugging Face directory, and its tokenizer.json if there is one.

        `map` leaves the weights in the file, read-only; `keep_dtype` does not turn bf16 and f16 into float32;
        a quantized model stays one."""
        options = struct(_ffi.mm_load_options, map=map, keep_dtype=keep_dtype)
        model = cls._wrap(create(_ffi.mm_model, lib.mm_model_load, lib.mm_model_free, path(directory),
                                 ctypes.byref(options)))
        if (pathlib.Path(os.fsdecode(directory)) / "tokenizer.json").exists():
            model.tokenizer = Tokenizer(directory)
        return model

    @classmethod
    def from_bytes(cls, config: Config, data: bytes) -> Model:
        """Weights from a safetensors image in memory."""
        if not isinstance(data, bytes):   # ctypes would take a str's own memory, as wide as its characters are
            raise unfit("data", "bytes", data)
        return cls._wrap(create(_ffi.mm_model, lib.mm_model_load_memory, lib.mm_model_free, config, data, len(data)))

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, and the tokenizer if the model has one."""
        lib.mm_model_save(self, path(directory))
        if self.tokenizer is not None:
            self.tokenizer.save(directory)

    def close(self) -> None:
        """Let go of the model and of its tokenizer."""
        super().close()
        self.tokenizer = None

    def copy(self) -> Model:
        """A second model with weights of its own."""
        return self._second(lib.mm_model_copy)

    def cast(self, dtype: int) -> Model:
        """A second model with the weights as MM_F32, MM_BF16 or MM_F16."""
        return self._second(lib.mm_model_cast, dtype)

    def quantize(self, dtype: int) -> Model:
        """A second model with the matrices in blocks, MM_Q8_0 or MM_Q4_0: smaller, and decoded faster."""
        return self._second(lib.mm_model_quantize, dtype)

    def _second(self, function: Any, *arguments: Any) -> Model:
        model = Model._wrap(create(_ffi.mm_model, function, lib.mm_model_free, self, *arguments))
        model.tokenizer = self.tokenizer
        return model

    @property
    def config(self) -> Config:
        """A copy of its config."""
        native = self._native   # its config is lent
        lent = lib.mm_model_config(native)
        return Config._wrap(create(_ffi.mm_config, lib.mm_config_copy, lib.mm_config_free, lent))

    @property
    def weights(self) -> Weights:
        """Every tensor by name, without copying, for reading."""
        return Weights(self)

    @contextmanager
    def writing(self, name: str) -> Iterator[np.ndarray]:
        """One tensor for writing, in place:

            with model.writing("model.norm.weight") as weight:
                weight *= 0.5
        """
        names, view, native = list(self.weights), _ffi.mm_view(), self._native
        if name not in names:
            raise KeyError(name)
        lib.mm_model_write(native, names.index(name), ctypes.byref(view))
        try:
            yield show(view, native, writable=True)
        finally:
            lib.mm_model_written(native)

    def generate(self, prompt: str | IntArray, *, max_new_tokens: int = 128, tokenizer: Tokenizer | None = None,
                 cache: Cache | None = None, stop_ids: IntArray | None = None, threads: int = 0, bos: bool = False,
                 **sampling: Any) -> Iterator[str]:
        """Continue a prompt; an iterator of pieces of text, as soon as each is certain.

        With `bos` the config's bos_token_id stands before it, as before the texts of a training on rows of MM_ROWS_PACK or
        MM_ROWS_PAD3; those of MM_ROWS_PAD have none. It ends with the config's eos or, where that has none, with <|im_end|>;
        `stop_ids` replace them. `sampling`: seed, temperature, top_k, top_p, min_p, repetition_penalty, and cache_dtype and
        on_logits as of Context.generate().
        A `cache` holds the prompt and all that was drawn once the iterator has ended, the stop id too, as far as it has room:
        the next prompt goes on behind it. Closing the iterator, or leaving its loop and letting it go, ends the generation at
        its next token."""
        from .generate import stream_text
        self._native  # a closed model says so, and not that it has no tokenizer
        return stream_text(self, prompt, max_new_tokens, tokenizer or self.tokenizer, cache, stop_ids, threads, bos, sampling)
