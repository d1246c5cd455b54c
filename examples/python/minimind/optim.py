"""Optimizer and learning-rate schedules."""
from __future__ import annotations

import ctypes
import os
from typing import Any

from . import _ffi
from ._library import Handle, create, lib, path, struct
from .context import Context
from .model import Model


class Optimizer(Handle):
    """AdamW with decoupled decay: beta1, beta2, eps, weight_decay."""

    def __init__(self, model: Model, **options: Any) -> None:
        wanted = struct(_ffi.mm_adamw_options, **options)
        self._handle = create(_ffi.mm_optimizer, lib.mm_adamw_create, lib.mm_optimizer_free, model._native,
                              ctypes.byref(wanted))

    def step(self, context: Context, learning_rate: float, max_grad_norm: float = 0.0) -> float:
        """Update the weights from the context's gradients; returns their norm before clipping."""
        step = struct(_ffi.mm_step, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        lib.mm_optimizer_step(self._native, context._native, ctypes.byref(step))
        return step.grad_norm

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return lib.mm_optimizer_steps(self._native)

    def save(self, where: str | os.PathLike[str]) -> None:
        """Write the moments as safetensors."""
        lib.mm_optimizer_save(self._native, path(where))

    def load(self, where: str | os.PathLike[str]) -> None:
        """Read them back; on failure the optimizer is as before."""
        lib.mm_optimizer_load(self._native, path(where))


def schedule_lr(rule: int, step: int, total: int, lr: float, warmup: int = 0) -> float:
    """The learning rate at a step by an MM_SCHEDULE_… rule."""
    out = ctypes.c_double()
    lib.mm_schedule_lr(rule, step, total, warmup, lr, ctypes.byref(out))
    return out.value
