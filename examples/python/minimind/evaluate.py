"""How good a model is: its loss on text, its choice among endings, and whether its answers hold what they should."""
from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any, Callable

from . import _ffi
from ._caught import Caught
from ._library import Alone, as_dict, document, field_bytes, lib, struct
from .context import Context
from .data import Dataset, Loader
from .report import Report
from .tokenizer import Tokenizer


class Evaluation(SimpleNamespace):
    """The fields of the library's result: loss, perplexity, bits_per_byte, accuracy, passed, rows…"""


def loss(context: Context, loader: Loader, max_batches: int = 0) -> Evaluation:
    """The mean loss over an epoch of a loader's rows, which then stands where it stood."""
    out = struct(_ffi.mm_evaluation)
    with Caught():   # bad lines may be told to a log
        lib.mm_evaluate_loss(context, loader, max_batches, ctypes.byref(out))
    return Evaluation(**as_dict(out))


def text(context: Context, tokenizer: Tokenizer, text: str | bytes, **options: Any) -> Evaluation:
    """The mean loss over one text, in windows of the context's max_length. `options`: overlap, bos_id."""
    out, wanted, data = struct(_ffi.mm_evaluation), struct(_ffi.mm_evaluate_text_options, **options), document(text, "text")
    lib.mm_evaluate_text(context, tokenizer, data, len(data), ctypes.byref(wanted), ctypes.byref(out))
    return Evaluation(**as_dict(out))


def choices(context: Context, tokenizer: Tokenizer, dataset: Dataset, *,
            on_row: Callable[[SimpleNamespace], Any] | None = None, **options: Any) -> Evaluation:
    """Multiple choice over rows {"prompt", "choices", "answer"}. `on_row(choice)` is told row, answer, picked,
    picked_per_byte, sums and per_byte; True ends it. `options`: max_rows, bos_id."""

    def read(choice: Any) -> SimpleNamespace:
        fields = as_dict(choice)
        count = fields.pop("count")
        return SimpleNamespace(**{**fields, "sums": choice.sums[:count], "per_byte": choice.per_byte[:count]})

    return _run(lib.mm_evaluate_choices, (context, tokenizer, dataset), _ffi.mm_choices_options,
                _ffi.mm_choices_result, _ffi.mm_choice_fn, read, on_row, options)


def prompts(context: Context, tokenizer: Tokenizer, dataset: Dataset, *,
            on_row: Callable[[SimpleNamespace], Any] | None = None, report: Report | None = None,
            **options: Any) -> Evaluation:
    """Prompts whose greedy answers must hold given strings, over rows {"prompt" or "conversations", "expect"}.
    `on_row(answer)` is told row, prompt, answer, missing, passed, tokens and finish; True ends it. `options`: the fields of
    mm_prompts_options."""

    def read(answer: Any) -> SimpleNamespace:
        fields = as_dict(answer)
        length = fields.pop("answer_length")
        fields["prompt"] = answer.prompt.decode("utf-8")
        fields["answer"] = field_bytes(answer, "answer", length).decode("utf-8")
        fields["missing"] = answer.missing.decode("utf-8") if answer.missing is not None else None
        fields["passed"] = bool(answer.passed)
        return SimpleNamespace(**fields)

    with Alone(report):
        return _run(lib.mm_evaluate_prompts, (context, tokenizer, dataset), _ffi.mm_prompts_options,
                    _ffi.mm_prompts_result, _ffi.mm_prompt_answer_fn, read, on_row, {**options, "report": report})


def _run(function: Callable[..., None], handles: tuple[Any, ...], options_kind: Any, result_kind: Any, callback: Any,
         read: Callable[[Any], Any], on_row: Callable[[Any], Any] | None, options: dict[str, Any]) -> Evaluation:
    """Call an evaluation that tells about rows; an exception of on_row ends it and is passed on."""
    caught = Caught()

    def told(user: Any, row: Any) -> int:
        return 1 if on_row is not None and on_row(read(row.contents)) else 0

    out, wanted = struct(result_kind), struct(options_kind, on_row=caught.callback(callback, told), **options)
    with caught:
        function(*handles, ctypes.byref(wanted), ctypes.byref(out))
    return Evaluation(**as_dict(out))
