"""Dataset and Loader: from JSON lines to batches."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Iterator, Sequence

import numpy as np

from . import _ffi
from ._arrays import copied
from ._caught import Caught
from ._library import Alone, Handle, array_of, as_dict, bytes_at, create, fill_bytes, lib, path, struct
from .context import Batch
from .tokenizer import Tokenizer


@dataclass
class Prompt:
    """A prompt's ids, its reference answer if the row has one, and the row."""

    ids: np.ndarray
    answer: str | None
    row: int


class Dataset(Handle):
    """JSON-lines files as one list of rows."""

    def __init__(self, paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *,
                 weights: Sequence[float] | None = None, max_rows: Sequence[int] | None = None,
                 index_directory: str | os.PathLike[str] | None = None, **options: Any) -> None:
        """One file or several, each with a weight and a limit if wanted. `options`: validation, side, cache_from,
        max_line."""
        files = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
        count = len(files)
        for name, values in (("weights", weights), ("max_rows", max_rows)):
            if values is not None and len(values) != count:
                raise ValueError(f"{name} has {len(values)} numbers for {count} files")
        wanted = struct(_ffi.mm_dataset_options, count=count, **options)
        wanted.paths = (ctypes.c_char_p * max(1, count))(*[path(one) for one in files])
        if weights is not None:
            wanted.weights = array_of(ctypes.c_double, weights, "weights")
        if max_rows is not None:
            wanted.max_rows = array_of(ctypes.c_int64, max_rows, "max_rows")
        if index_directory is not None:
            wanted.index_directory = path(index_directory)
        self._handle = create(_ffi.mm_dataset, lib.mm_dataset_create, lib.mm_dataset_free, ctypes.byref(wanted))

    def __len__(self) -> int:
        return lib.mm_dataset_rows(self)

    def text(self, row: int) -> str:
        """The "text" of a row."""
        return fill_bytes(lib.mm_dataset_text, self, row).decode("utf-8")

    def line(self, row: int) -> bytes:
        """The line of a row as it stands in its file."""
        return fill_bytes(lib.mm_dataset_line, self, row)

    def where(self, row: int) -> tuple[str, int]:
        """The file and the line, from 1, that a row comes from."""
        name, line, native = ctypes.c_char_p(), ctypes.c_int64(), self._native   # whose name is lent
        lib.mm_dataset_where(native, row, ctypes.byref(name), ctypes.byref(line))
        return os.fsdecode(name.value or b""), line.value


class Loader(Handle):
    """Turns rows into batches. Iterating gives one epoch; the next loop gives the next."""

    def __init__(self, dataset: Dataset, tokenizer: Tokenizer, **options: Any) -> None:
        """`options`: the fields of mm_loader_options, such as kind, batch, max_length, form, seed, workers."""
        wanted = struct(_ffi.mm_loader_options, **options)
        self._handle = create(_ffi.mm_loader, lib.mm_loader_create, lib.mm_loader_free, dataset,
                              tokenizer, ctypes.byref(wanted))

    @property
    def length(self) -> int:
        """Tokens per row of its batches; of prompts, at most."""
        return lib.mm_loader_length(self)

    def next_batch(self) -> Batch | None:
        """The next batch, a copy; None at the end of the epoch."""
        batch, native = struct(_ffi.mm_batch), self._native
        with Alone(native), Caught():   # the next call would write over what is copied; bad lines may be told to a log
            lib.mm_loader_next(native._as_parameter_, ctypes.byref(batch))
            if batch.batch == 0:
                return None
            shape = batch.batch, batch.length
            return Batch(copied(batch.ids, shape), copied(batch.targets, shape), copied(batch.document_ids, shape))

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_prompts(self) -> tuple[list[Prompt], bool]:
        """Of a loader of prompts: the next ones, and whether the epoch is over."""
        out, native = struct(_ffi.mm_prompts), self._native
        with Alone(native), Caught():
            lib.mm_loader_next_prompts(native._as_parameter_, ctypes.byref(out))
            return [self._prompt(out, i) for i in range(out.count)], bool(out.at_end)

    @staticmethod
    def _prompt(out: Any, i: int) -> Prompt:
        answer = out.answers[i]
        if answer is not None:   # by its length: it may hold NUL
            address = ctypes.cast(out.answers, ctypes.POINTER(ctypes.c_void_p))[i]
            answer = bytes_at(ctypes.c_void_p(address), out.answer_lengths[i]).decode("utf-8")
        return Prompt(np.array(out.ids[i][:out.lengths[i]], dtype=np.int32), answer, out.rows[i])

    def tell(self) -> dict[str, int]:
        """Where it stands: what seek() takes."""
        out = struct(_ffi.mm_loader_position)
        lib.mm_loader_tell(self, ctypes.byref(out))
        return as_dict(out)

    def seek(self, position: dict[str, int]) -> None:
        """Go where tell() said."""
        wanted = struct(_ffi.mm_loader_position, **position)
        lib.mm_loader_seek(self, ctypes.byref(wanted))

    def stats(self) -> dict[str, Any]:
        """What it has done, and what it cost."""
        out = struct(_ffi.mm_loader_stats)
        lib.mm_loader_get_stats(self, ctypes.byref(out))
        return as_dict(out)

    def check_row(self, row: int) -> dict[str, int]:
        """Read one row as batches do, and tell about it: tokens, learnt, remarks (MM_REMARK_…)."""
        out = struct(_ffi.mm_row_report)
        lib.mm_loader_check_row(self, row, ctypes.byref(out))
        return as_dict(out)
