"""Chat: conversations to ids, replies back to messages."""
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _ffi
from ._library import Handle, bytes_at, create, document, field_bytes, fill, fill_bytes, lib, struct, text
from .tokenizer import Tokenizer


@dataclass
class ToolCall:
    """A tool call in a reply; with a `problem`, only `raw` has something to say."""

    name: str
    arguments: str
    raw: str
    problem: str


@dataclass
class Reply:
    """A model's reply taken apart; `message` is what Chat.add_message() takes, `flags` are MM_REPLY_…"""

    content: str
    reasoning: str | None
    calls: list[ToolCall] = field(default_factory=list)
    flags: int = 0
    message: dict[str, Any] = field(default_factory=dict)


class Chat(Handle):
    """A conversation.

        chat = Chat()
        chat.add("user", "Hello")
        ids = chat.encode(model.tokenizer)
        reply = Chat.parse("".join(model.generate(ids)))
        chat.add_message(reply.message)
    """

    def __init__(self) -> None:
        self._handle = create(_ffi.mm_chat, lib.mm_chat_create, lib.mm_chat_free)

    def add(self, role: str, content: str | bytes) -> None:
        """Add a message of "system", "user", "assistant" or "tool"."""
        data = document(content, "content")
        lib.mm_chat_add(self, text(role), data, len(data))

    def add_message(self, message: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Add a message or a list of them, with all that templates know: reasoning_content, tool_calls…"""
        data = json.dumps(message, ensure_ascii=False).encode("utf-8")
        lib.mm_chat_add_json(self, data, len(data))

    def set_tools(self, tools: list[dict[str, Any]]) -> None:
        """Say which tools the model may call, in place of those before."""
        data = json.dumps(tools, ensure_ascii=False).encode("utf-8")
        lib.mm_chat_set_tools_json(self, data, len(data))

    def __len__(self) -> int:
        return lib.mm_chat_count(self)

    def remove(self, first: int, count: int = 1) -> None:
        """Take out messages."""
        lib.mm_chat_remove(self, first, count)

    def truncate(self, count: int = 0) -> None:
        """Keep the first messages only."""
        lib.mm_chat_truncate(self, count)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, copied."""
        return json.loads(fill_bytes(lib.mm_chat_write_json, self))

    def format(self, tokenizer: Tokenizer | None = None, *, roles: dict[str, str] | None = None, **options: Any) -> str:
        """The conversation as text, ending in the opening of an answer. `roles`: the fields of mm_chat_roles in place of a
        template; `options`: template_name, add_generation_prompt, thinking, content_split."""
        wanted, _held = _options(roles, options)
        return fill_bytes(lib.mm_chat_format, self, tokenizer, ctypes.byref(wanted)).decode("utf-8")

    def encode(self, tokenizer: Tokenizer, *, roles: dict[str, str] | None = None, **options: Any) -> np.ndarray:
        """The same as ids."""
        wanted, _held = _options(roles, options)
        ids, count = fill(lib.mm_chat_encode, self, tokenizer, ctypes.byref(wanted), kind=ctypes.c_int32)
        return np.frombuffer(ids, dtype=np.int32, count=count)

    @staticmethod
    def parse(reply: str | bytes, in_thought: bool = False) -> Reply:
        """Take a reply apart; `in_thought` if the prompt ended within an open think block."""
        data = document(reply, "reply")
        native = create(_ffi.mm_chat_reply, lib.mm_chat_parse, lib.mm_chat_reply_free, data, len(data), in_thought)
        calls = [_call(native, i) for i in range(lib.mm_chat_reply_call_count(native))]
        return Reply(_text(lib.mm_chat_reply_content, native) or "", _text(lib.mm_chat_reply_reasoning, native), calls,
                     lib.mm_chat_reply_flags(native), json.loads(_text(lib.mm_chat_reply_json, native) or "{}"))


def _options(roles: dict[str, str] | None, options: dict[str, Any]) -> tuple[Any, Any]:
    wanted = struct(_ffi.mm_chat_options, **{"add_generation_prompt": 1, **options})
    held = struct(_ffi.mm_chat_roles, **roles) if roles is not None else None
    if held is not None:
        wanted.roles = ctypes.pointer(held)
    return wanted, held


def _text(function: Any, native: Any) -> str | None:
    length = ctypes.c_size_t()
    lent = function(native, ctypes.byref(length))
    return bytes_at(lent, length.value).decode("utf-8") if lent else None


def _call(native: Any, index: int) -> ToolCall:
    out = struct(_ffi.mm_tool_call)
    lib.mm_chat_reply_call(native, index, ctypes.byref(out))

    def part(name: str) -> str:
        return field_bytes(out, name, getattr(out, name + "_length")).decode("utf-8")

    return ToolCall(part("name"), part("arguments"), part("raw"), (out.problem or b"").decode("utf-8"))
