"""Cache, and continuing token sequences: all at once, or as a stream of text."""
from __future__ import annotations

import ctypes
import os
import queue
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from . import _ffi
from ._arrays import IntArray, integers, pointer
from ._caught import Caught, PutOff
from ._library import Alone, Handle, create, lib, path, struct
from .context import Context
from .errors import StateError
from .model import Model
from .tokenizer import Tokenizer


class Cache(Handle):
    """Keys and values of sequences that go on from call to call."""

    def __init__(self, model: Model, sequences: int = 1, capacity: int = 512, dtype: int = _ffi.MM_F32) -> None:
        self._handle = create(_ffi.mm_cache, lib.mm_cache_create, lib.mm_cache_free, model, sequences, capacity, dtype)

    @classmethod
    def load(cls, model: Model, file: str | os.PathLike[str]) -> Cache:
        """As `save` left it; the model must have the weights that made it."""
        return cls._wrap(create(_ffi.mm_cache, lib.mm_cache_load, lib.mm_cache_free, model, path(file)))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write what the sequences hold to a file, for load() and the same model."""
        lib.mm_cache_save(self, path(file))

    def fork(self, origin: Cache, origin_sequence: int = 0, sequence: int = -1, length: int = -1) -> None:
        """Begin a sequence, or every one, as one of `origin` (which may be this cache) begins."""
        lib.mm_cache_fork(self, sequence, origin, origin_sequence, length)

    @property
    def capacity(self) -> int:
        """Tokens that a sequence has room for."""
        return lib.mm_cache_capacity(self)

    def length(self, sequence: int = 0) -> int:
        """Tokens that a sequence holds; -1 if there is no such sequence."""
        return lib.mm_cache_length(self, sequence)

    def truncate(self, length: int = 0, sequence: int = -1) -> None:
        """Forget all but the first tokens of a sequence, or of every one."""
        lib.mm_cache_truncate(self, sequence, length)


@dataclass
class Generated:
    """What a prompt was continued with; `finish` is an MM_FINISH_… number, `stop` the stop id that was drawn, if one was."""

    ids: np.ndarray
    logprobs: np.ndarray
    finish: int
    stop: int | None = None
    stop_logprob: float = 0.0


def generate(context: Context, prompts: Sequence[IntArray], *, max_new_tokens: int = 128, cache: Cache | None = None,
             cache_dtype: int = _ffi.MM_F32, stop_ids: IntArray | None = None,
             on_token: Callable[[int, int, float], Any] | None = None,
             on_logits: Callable[[int, np.ndarray, np.ndarray], Any] | None = None, **sampling: Any) -> list[Generated]:
    """Continue prompts of ids, each as if it were alone.

    Without a `cache` the context has one of its own, of `cache_dtype`: MM_F32, MM_BF16 or MM_Q8_0. `stop_ids` replace the
    config's eos; an empty list stops at nothing. `on_token(sequence, id, logprob)` may return True to end its sequence.
    `on_logits(sequence, ids, logits)` comes before each token is drawn: `ids` are those made so
    far, and `logits` [vocab_size], float32, may be changed, to -inf where a token must not come; True ends the sequence with
    nothing drawn. An exception of theirs, or of a signal's handler, ends all and is passed on, and a `cache` then stands
    where it stood. `sampling`: the fields of mm_sampling."""
    if len(prompts) == 0:
        raise ValueError("prompts: none given")
    rows = [integers(prompt, f"prompts[{i}]").ravel() for i, prompt in enumerate(prompts)]
    caught = Caught()

    def told(user: Any, sequence: int, token: int, logprob: float) -> int:
        return 1 if on_token is not None and on_token(sequence, token, logprob) else 0

    def changed(user: Any, sequence: int, ids: Any, made: int, logits: Any, size: int) -> int:
        lent = np.ctypeslib.as_array(logits, (size,))
        own = lent.copy()   # which may be kept
        ends = on_logits(sequence, np.array(ids[:made], dtype=np.int32), own)
        lent[:] = own
        return 1 if ends else 0

    count = len(rows)
    lengths = np.array([row.size for row in rows], dtype=np.int32)
    drawn = struct(_ffi.mm_sampling, **sampling)
    options = struct(_ffi.mm_generate_options, sequences=count, max_new_tokens=max_new_tokens,
                     prompt_lengths=pointer(lengths), sampling=ctypes.pointer(drawn), cache=cache, cache_dtype=cache_dtype,
                     prompts=(ctypes.POINTER(ctypes.c_int32) * count)(*[pointer(row) for row in rows]))
    if on_token is not None or threading.current_thread() is threading.main_thread():   # which sees to Ctrl-C then
        options.on_token = caught.callback(_ffi.mm_token_fn, told)
    if on_logits is not None:
        options.on_logits = caught.callback(_ffi.mm_logits_fn, changed)
    stops = None
    if stop_ids is not None:
        stops = integers(stop_ids, "stop_ids").ravel()
        options.stop_count = stops.size
        stops = stops if stops.size else np.zeros(1, dtype=np.int32)
        options.stop_ids = pointer(stops)
    result, native, held = struct(_ffi.mm_generate_result), context._native, None if cache is None else cache._native
    with Alone(native, held):   # what the result shows is the context's
        stood = [lib.mm_cache_length.__wrapped__(held, i) for i in range(count)] if held is not None else []
        try:
            with caught:
                lib.mm_generate(native._as_parameter_, ctypes.byref(options), ctypes.byref(result))
                return [_sequence(result, i) for i in range(count)]
        except BaseException:   # where C failed, it has cut the cache back itself
            for i, length in enumerate(stood):
                if length >= 0:
                    lib.mm_cache_truncate.__wrapped__(held, i, length)
            raise


def _sequence(result: Any, i: int) -> Generated:
    begin, end = i * result.stride, i * result.stride + result.lengths[i]
    return Generated(np.array(result.ids[begin:end], dtype=np.int32), np.array(result.logprobs[begin:end], dtype=np.float32),
                     result.finish[i], result.stops[i] if result.stops[i] >= 0 else None, result.stop_logprobs[i])


_END = object()


def stream_text(model: Model, prompt: str | IntArray, max_new_tokens: int, tokenizer: Tokenizer | None,
                cache: Cache | None, stop_ids: IntArray | None, threads: int, bos: bool,
                sampling: dict[str, Any]) -> Iterator[str]:
    """Model.generate(): checks at once, then streams."""
    for name in ("context", "prompts", "on_token"):   # generate()'s own, which has them from here
        if name in sampling:
            raise TypeError(f"a stream of text takes no {name}; it is Context.generate() that is given ids and told tokens")
    if tokenizer is None:
        raise StateError("the model has no tokenizer: give one")
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else integers(prompt, "prompt").ravel()
    past = max(0, cache.length(0)) if cache is not None else 0
    config = model.config
    if stop_ids is None and config["eos_token_id"] < 0:
        end = tokenizer.find("<|im_end|>")
        stop_ids = [] if end is None else [end]
    if bos:
        ids = np.concatenate(([config["bos_token_id"]], ids)).astype(np.int32)
    room = min(past + ids.size + max(1, max_new_tokens), config["max_position_embeddings"])
    context = Context(model, max_length=max(1, min(int(ids.size), 512, room)), max_context=max(1, room), threads=threads,
                      outputs=_ffi.MM_OUT_LAST_LOGITS)
    return _stream(context, room, ids, tokenizer.decoder(),
                   dict(sampling, max_new_tokens=max_new_tokens, cache=cache, stop_ids=stop_ids))


def _stream(context: Context, room: int, ids: np.ndarray, decoder: Any, options: dict[str, Any]) -> Iterator[str]:
    """One thread draws tokens and never waits for the reader; this one turns them into text as they come."""
    tokens: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop, home, cache = threading.Event(), os.getpid(), options["cache"]

    def next_token() -> Any:
        if os.getpid() != home:   # the thread stayed there, and nobody would ever put a token
            raise StateError("this stream belongs to the process that began it, and is not continued in a forked child")
        return tokens.get()

    def on_token(sequence: int, token: int, logprob: float) -> bool:
        tokens.put(token)
        return stop.is_set()

    def draw() -> None:
        try:
            before = 0 if cache is None else cache.length(0)
            made = generate(context, [ids], on_token=on_token, **options)[0]
            # who reads text has no last id to go on with; where on_logits has ended it, all are in the cache
            left = [*made.ids, *([] if made.stop is None else [made.stop])]
            if cache is not None and before + len(ids) + len(left) > cache.length(0) < min(cache.capacity, room):
                context.forward(left[-1:], cache=cache)
            tokens.put(_END)
        except BaseException as error:
            if not stop.is_set():
                tokens.put(error)

    thread = threading.Thread(target=draw, name="minimind-generate", daemon=True)
    with Caught():   # a signal's handler that raises in the midst of it would leave half a thread
        thread.start()
    end = Caught()
    try:
        while (token := next_token()) is not _END:
            if isinstance(token, BaseException):
                raise token
            if piece := decoder.push(token):
                yield piece
        if piece := decoder.flush():
            yield piece
    except GeneratorExit:   # closed, or let go: nobody tells which
        end = PutOff()
        raise
    finally:
        with end:
            stop.set()
            if thread.is_alive() and cache is None:
                context.cancel()   # the context is this stream's alone; a caller's cache keeps what was drawn so far
            thread.join()
            context.close()
            decoder.close()   # here, and not with the frame, where nothing is put off any more
