"""Tokenizer and Decoder: text to ids and back."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Iterable

import numpy as np

from . import _ffi
from ._arrays import IntArray, integers, pointer
from ._caught import Caught
from ._library import (Alone, Handle, bytes_at, c_strings, create, document, fill, fill_bytes, lib, path, struct, text,
                       texts_of)


class Tokenizer(Handle):
    """A byte-level BPE, as Hugging Face's tokenizer.json describes it."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        """Read a tokenizer.json, or that of a directory with its chat template."""
        self._handle = create(_ffi.mm_tokenizer, lib.mm_tokenizer_load, lib.mm_tokenizer_free, path(where))

    @classmethod
    def from_json(cls, json: str | bytes) -> Tokenizer:
        """Read a tokenizer.json's text."""
        data = document(json, "json")
        return cls._wrap(create(_ffi.mm_tokenizer, lib.mm_tokenizer_load_memory, lib.mm_tokenizer_free, data, len(data)))

    @classmethod
    def train(cls, texts: Iterable[str | bytes], vocab_size: int = 6400, *,
              special_tokens: Iterable[str | bytes] | None = None,
              min_frequency: int = 1, on_progress: Callable[[int, int], Any] | None = None) -> Tokenizer:
        """Learn from texts. `on_progress(done, total)` may return True to give up with CancelledError; an exception of
        `texts` or `on_progress` ends the training and is passed on."""
        iterator, caught, piece = iter(texts_of(texts, "texts")), Caught(), [b""]

        def next_text(user: Any, out: Any, length: Any) -> int:
            try:
                piece[0] = document(next(iterator), "texts")   # lent to C until the next call
            except StopIteration:
                return 0
            out[0], length[0] = piece[0], len(piece[0])
            return 1

        def progress(user: Any, done: int, total: int) -> int:
            return 1 if on_progress and on_progress(done, total) else 0

        options = struct(_ffi.mm_tokenizer_train_options, vocab_size=vocab_size, min_frequency=min_frequency,
                         next_text=caught.callback(_ffi.mm_text_fn, next_text, failed=-1),
                         on_progress=caught.callback(_ffi.mm_progress_fn, progress))
        if special_tokens is not None:
            options.special_tokens, options.special_count = c_strings(special_tokens, "special_tokens")
        with caught:
            return cls._wrap(create(_ffi.mm_tokenizer, lib.mm_tokenizer_train, lib.mm_tokenizer_free, ctypes.byref(options)))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write tokenizer.json and what belongs to it; the directory is made if it is missing."""
        lib.mm_tokenizer_save(self, path(directory))

    @property
    def vocab_size(self) -> int:
        """How many ids there are."""
        return lib.mm_tokenizer_vocab_size(self)

    def find(self, content: str) -> int | None:
        """The id of an added token or a vocabulary string; None if there is none."""
        found = lib.mm_tokenizer_find(self, text(content))
        return None if found < 0 else found

    def is_special(self, token: int) -> bool:
        """Whether an id is an added token marked special."""
        return bool(lib.mm_tokenizer_is_special(self, token))

    def encode(self, content: str | bytes, split: int = _ffi.MM_SPLIT_ALL) -> np.ndarray:
        """Text to ids, int32; MM_SPLIT_NO_SPECIAL is for text from outside. No bos or eos is added."""
        data = document(content, "content")
        ids, count = fill(lib.mm_encode, self, data, len(data), split, kind=ctypes.c_int32)
        return np.frombuffer(ids, dtype=np.int32, count=count)

    def decode(self, ids: IntArray, skip_special: bool = True) -> str:
        """Ids to text; bytes that are not UTF-8 become U+FFFD."""
        array = integers(ids, "ids").ravel()
        return fill_bytes(lib.mm_decode, self, pointer(array), array.size, skip_special).decode("utf-8")

    def decode_bytes(self, ids: IntArray, skip_special: bool = True) -> bytes:
        """Ids to the tokens' bytes as they are."""
        array = integers(ids, "ids").ravel()
        return fill_bytes(lib.mm_decode_bytes, self, pointer(array), array.size, skip_special)

    def decoder(self, skip_special: bool = True) -> Decoder:
        """A decoder for ids that arrive one by one."""
        return Decoder(self, skip_special)

    def chat_template(self) -> str:
        """The name of the chat template that its directory brought."""
        name, native = ctypes.c_char_p(), self._native
        lib.mm_chat_template_name(native, ctypes.byref(name))
        return (name.value or b"").decode()


class Decoder(Handle):
    """Gives text as soon as it is certain, never half a character."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._handle = create(_ffi.mm_decoder, lib.mm_decoder_create, lib.mm_decoder_free, tokenizer, skip_special)

    def push(self, token: int) -> str:
        """Take one id; often there is no text yet."""
        return self._text(lib.mm_decoder_push, token)

    def flush(self) -> str:
        """End the stream; the decoder is then as new."""
        return self._text(lib.mm_decoder_flush)

    def _text(self, function: Callable[..., None], *arguments: Any) -> str:
        out, length, native = ctypes.c_char_p(), ctypes.c_size_t(), self._native
        with Alone(native):   # whose text is lent until its next call
            function(native._as_parameter_, *arguments, ctypes.byref(out), ctypes.byref(length))
            return bytes_at(out, length.value).decode("utf-8")
