"""What the tests share: a tiny model, a byte tokenizer, files."""
from __future__ import annotations

import gc
import json
import os
import pathlib
import tempfile
import unittest

import minimind
from minimind._library import Handle

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"


def held() -> int:
    """Bytes that the library holds, with nothing left for Python to collect."""
    gc.collect()
    return minimind.memory_usage()["current"]


class Case(unittest.TestCase):
    """A case with a directory of its own, and a look at the library's memory behind it."""

    def setUp(self) -> None:
        self.addCleanup(self._look_at_memory, minimind.memory_usage()["current"])
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def _look_at_memory(self, before: int) -> None:
        for name in [name for name, value in vars(self).items() if isinstance(value, Handle)]:   # setUp's
            delattr(self, name)
        if minimind.memory_usage()["current"] > before:   # collecting takes longer than most tests
            self.assertLessEqual(held(), before)

    def put(self, name: str, text: str) -> pathlib.Path:
        file = self.directory / name
        file.write_text(text, encoding="utf-8")
        return file

    def put_rows(self, name: str, rows: list[dict]) -> pathlib.Path:
        return self.put(name, "".join(json.dumps(row) + "\n" for row in rows))


def tiny_config(**fields) -> minimind.Config:
    return minimind.Config("minimind2-small", **{
        "vocab_size": 259, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, **fields})


def tiny_model(seed: int = 42, **fields) -> minimind.Model:
    with tiny_config(**fields) as config:
        return minimind.Model(config, seed)


def byte_tokenizer() -> minimind.Tokenizer:
    """MiniMind's three special tokens and the 256 bytes."""
    return minimind.Tokenizer.train(["a"], vocab_size=259)


def no_such(name: str) -> str:
    return os.path.join(os.sep, "no", "such", "place", name)
