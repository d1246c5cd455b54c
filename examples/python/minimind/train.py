"""Trainer: the training loop with checkpoints that resume to the same bits, and what a teacher tells it beforehand."""
from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable

import numpy as np

from . import _ffi
from ._caught import Caught
from ._library import Alone, Handle, as_dict, create, field_bytes, lib, native_of, path, struct
from .adapter import Adapter
from .data import Loader
from .model import Model
from .tokenizer import Tokenizer


class Progress(SimpleNamespace):
    """The fields of mm_train_progress: step, total_steps, epoch, tokens, loss, learning_rate, grad_norm…; `metrics` and
    `validation_metrics` have the stage's own readings by name, `expert_load` [layers, experts] the share of choices that each
    routed expert got, or None."""


def _progress(told: Any) -> Progress:
    fields = as_dict(told)
    count, shape = fields.pop("metric_count"), (fields.pop("expert_layers"), fields.pop("experts"))
    fields["expert_load"] = np.ctypeslib.as_array(told.expert_load, shape).copy() if told.expert_load else None
    for name in ("metrics", "validation_metrics"):
        readings = getattr(told, name)
        fields[name] = {reading.name.decode(): reading.value for reading in readings[:count]} if readings else {}
    return Progress(**fields)


@dataclass
class Answer:
    """What the policy answered: `text` and `ids` without special tokens and without the stop id; `finish` is an MM_FINISH_…
    number, `sample` tells the answers to one prompt apart."""

    prompt: str
    text: str
    reference: str | None
    ids: np.ndarray
    row: int
    sample: int
    finish: int


class Policy:
    """Learning from rewards, for Trainer(policy=…) and a loader of prompts.

        Policy(lambda answer: float(answer.text == answer.reference), variant=minimind.MM_POLICY_PPO, group=8)

    `options`: the fields of mm_policy_training, such as beta, max_new_tokens, updates; `reference`, a Model, stands in for a
    copy of the policy. An exception of the reward's stops the run and is raised by Trainer.run()."""

    def __init__(self, reward: Callable[[Answer], float], *, reference: Model | None = None, **options: Any) -> None:
        if "lambda_" in options:
            options["lambda"] = options.pop("lambda_")
        self._reward = reward
        self._options = {"reference": native_of(_ffi.mm_model, reference, "reference"), **options}
        self._made(Caught())   # says what is wrong with them

    def _made(self, caught: Caught) -> Any:
        """The struct for one trainer."""

        def told(user: Any, answer: Any, out: Any) -> int:
            out[0] = float(self._reward(_answer(answer.contents)))
            return 0

        return struct(_ffi.mm_policy_training, reward=caught.callback(_ffi.mm_reward_fn, told), **self._options)


def _answer(told: Any) -> Answer:
    def decoded(name: str) -> str:
        return field_bytes(told, name, getattr(told, name + "_length")).decode("utf-8", "replace")

    return Answer(decoded("prompt"), decoded("text"), None if told.reference is None else decoded("reference"),
                  np.array(told.ids[:told.count], dtype=np.int32), told.row, told.sample, told.finish)


class Trainer(Handle):
    """Trains a model on a loader's batches.

        with Trainer(model, loader, tokenizer, output="out", learning_rate=1e-3, on_step=print) as trainer:
            trainer.run()
    """

    def __init__(self, model: Model, loader: Loader, tokenizer: Tokenizer | None = None, *,
                 output: str | os.PathLike[str] | None = None, on_step: Callable[[Progress], Any] | None = None,
                 validation: Loader | None = None, reference: Model | None = None, teacher: Model | None = None,
                 adapter: Adapter | None = None,
                 teacher_cache: str | os.PathLike[str] | None = None, dpo: dict[str, Any] | None = None,
                 distill: dict[str, Any] | None = None, policy: Policy | None = None, **options: Any) -> None:
        """`on_step(progress)` may return True to stop, as stop() does; an exception of its stops too and is raised by
        run(). `dpo` and `distill`: the fields of mm_dpo_options and mm_distill_options. `options`: the fields of
        mm_trainer_options, such as epochs, max_steps, schedule, stage=MM_STAGE_DPO, optimizer=MM_OPTIMIZER_MUON,
        compute=MM_BF16. With an `adapter` that alone is trained."""
        self._caught, self._reading = Caught(), threading.RLock()

        def step(user: Any, progress: Any) -> int:
            return 1 if on_step is not None and on_step(_progress(progress.contents)) else 0

        told = self._caught.callback(_ffi.mm_train_fn, step)   # there without on_step too: it sees to Ctrl-C
        wanted = struct(_ffi.mm_trainer_options, on_step=told, validation=validation, reference=reference, teacher=teacher,
                        adapter=adapter, **options)
        if output is not None:
            wanted.output = path(output)
        if policy is not None:
            learns = policy._made(self._caught)
            wanted.stage, wanted.policy = _ffi.MM_STAGE_POLICY, ctypes.pointer(learns)
        if teacher_cache is not None:
            wanted.teacher_cache = path(teacher_cache)
        if dpo is not None:
            wanted.dpo = ctypes.pointer(struct(_ffi.mm_dpo_options, **dpo))
        if distill is not None:
            wanted.distill = ctypes.pointer(struct(_ffi.mm_distill_options, **distill))
        self._handle = create(_ffi.mm_trainer, lib.mm_trainer_create, lib.mm_trainer_free, model, loader,
                              tokenizer, ctypes.byref(wanted),
                              keep=(native_of(_ffi.mm_loader, loader), validation and validation._native, wanted))

    def run(self) -> Progress:
        """Train to the end or until stopped, then save. Calling it again goes on."""
        native = self._native
        with Alone(native, *native.keep[:2]), self._caught:
            lib.mm_trainer_run(native._as_parameter_)
        return self._stands(native)   # on_step or another thread may have closed it

    def resume(self, where: str | os.PathLike[str]) -> None:
        """Go back to a checkpoint, or to the latest one of an output directory."""
        native = self._native
        with Alone(native, native.keep[0]):
            lib.mm_trainer_resume(native._as_parameter_, path(where))

    def stop(self) -> None:
        """Let run() finish its step, save and return. From any thread."""
        lib.mm_trainer_stop(self)

    def progress(self) -> Progress:
        """Where the run stands. From any thread."""
        return self._stands(self._native)

    def _stands(self, native: Any) -> Progress:
        out = struct(_ffi.mm_train_progress)   # whose readings are lent until the next thread asks
        with self._reading:
            lib.mm_trainer_progress(native, ctypes.byref(out))
            return _progress(out)

    def save(self) -> None:
        """Write a checkpoint now."""
        lib.mm_trainer_save(self)


def distill_cache_write(teacher: Model, loader: Loader, file: str | os.PathLike[str], k: int = 32, threads: int = 0) -> None:
    """Write down the `k` likeliest tokens that a teacher knows at each counted position of a loader's rows, for
    Trainer(teacher_cache=…). The loader then stands where it stood."""
    with Caught():   # bad lines may be told to a log
        lib.mm_distill_cache_write(teacher, loader, k, threads, path(file))
