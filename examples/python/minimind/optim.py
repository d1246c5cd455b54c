"""Optimizer and learning-rate schedules."""
from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from . import _ffi
from ._arrays import floats, pointer, show
from ._library import Handle, create, lib, path, struct
from .adapter import Adapter
from .context import Context
from .model import Model


class Optimizer(Handle):
    """AdamW with decoupled decay: beta1, beta2, eps, weight_decay, decay, trainable. For a model, or for an adapter."""

    def __init__(self, model: Model | Adapter, **options: Any) -> None:
        wanted = struct(_ffi.mm_adamw_options, **options)
        make = lib.mm_adamw_create_adapter if isinstance(model, Adapter) else lib.mm_adamw_create
        self._handle = create(_ffi.mm_optimizer, make, lib.mm_optimizer_free, model, ctypes.byref(wanted))

    @classmethod
    def muon(cls, model: Model, **options: Any) -> Optimizer:
        """Muon for the matrices inside layers, AdamW for the rest: momentum, and the options of AdamW."""
        wanted = struct(_ffi.mm_muon_options, **options)
        return cls._wrap(create(_ffi.mm_optimizer, lib.mm_muon_create, lib.mm_optimizer_free, model, ctypes.byref(wanted)))

    def step(self, context: Context, learning_rate: float, max_grad_norm: float = 0.0) -> float:
        """Update the weights from the context's gradients; returns their norm before clipping."""
        step = struct(_ffi.mm_step, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        lib.mm_optimizer_step(self, context, ctypes.byref(step))
        return step.grad_norm

    @property
    def steps(self) -> int:
        """Steps made so far."""
        return lib.mm_optimizer_steps(self)

    def save(self, where: str | os.PathLike[str]) -> None:
        """Write the moments as safetensors."""
        lib.mm_optimizer_save(self, path(where))

    def load(self, where: str | os.PathLike[str]) -> None:
        """Read them back; on failure the optimizer is as before."""
        lib.mm_optimizer_load(self, path(where))


class ValueHead(Handle):
    """What a policy expects its answers to earn, read from the hidden states: V = w·h + b, with an AdamW of its own
    (beta1, beta2, eps, weight_decay)."""

    def __init__(self, model: Model, **options: Any) -> None:
        wanted = struct(_ffi.mm_adamw_options, **options)
        self._handle = create(_ffi.mm_value_head, lib.mm_value_head_create, lib.mm_value_head_free, model,
                              ctypes.byref(wanted))

    def forward(self, hidden: Any) -> np.ndarray:
        """Values [B, T] of hidden states [B, T, C]."""
        states = floats(hidden, "hidden")
        values = np.empty(states.shape[:2], np.float32)
        lib.mm_value_head_forward(self, ctypes.byref(_view(states)), pointer(values))
        return values

    def backward(self, hidden: Any, d_values: Any, scale: float = 1.0) -> np.ndarray:
        """Add to the head's gradients; returns d_hidden, for Context.backward() with the same scale as loss_scale."""
        states = floats(hidden, "hidden")
        given, d_hidden = floats(d_values, "d_values", states.shape[:2]), np.empty_like(states)
        lib.mm_value_head_backward(self, ctypes.byref(_view(states)), pointer(given), scale, pointer(d_hidden))
        return d_hidden

    def step(self, learning_rate: float, max_grad_norm: float = 0.0) -> float:
        """Learn from the gradients, which are then 0; returns their norm before clipping."""
        step = struct(_ffi.mm_step, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        lib.mm_value_head_step(self, ctypes.byref(step))
        return step.grad_norm

    def zero_grad(self) -> None:
        """Set the gradients to 0."""
        lib.mm_value_head_zero_grad(self)

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """The weight [1, C] and the bias [1], over the head's own memory."""
        weight, bias = _ffi.mm_view(), _ffi.mm_view()
        lib.mm_value_head_weights(self, ctypes.byref(weight), ctypes.byref(bias))
        return show(weight, self._native, writable=True), show(bias, self._native, writable=True)

    def save(self, where: str | os.PathLike[str]) -> None:
        """Write weights, gradients and moments as safetensors."""
        lib.mm_value_head_save(self, path(where))

    def load(self, where: str | os.PathLike[str]) -> None:
        """Read them back; on failure the head is as before."""
        lib.mm_value_head_load(self, path(where))


def _view(array: np.ndarray) -> Any:
    """An mm_view of a contiguous float32 array of three axes."""
    if array.ndim != 3:
        raise ValueError(f"hidden has shape {array.shape}; [B, T, C] is needed")
    rows, length, width = array.shape
    view = _ffi.mm_view(array.ctypes.data, _ffi.MM_F32, 3)
    view.shape[:] = (rows, length, width, 1)
    view.strides[:] = (length * width, width, 1, 0)
    return view


def schedule_lr(rule: int, step: int, total: int, lr: float, warmup: int = 0) -> float:
    """The learning rate at a step by an MM_SCHEDULE_… rule."""
    out = ctypes.c_double()
    lib.mm_schedule_lr(rule, step, total, warmup, lr, ctypes.byref(out))
    return out.value
