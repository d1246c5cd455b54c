"""Losses of later stages of training and their gradients, on numpy arrays."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _ffi
from ._arrays import floats, integers, pointer
from ._library import as_dict, lib, struct


def _matrix(values: Any, name: str, rank: int = 2) -> np.ndarray:
    array = floats(values, name)
    if array.ndim != rank:
        raise ValueError(f"{name} has {array.ndim} axes; {rank} are needed")
    return array


def sequence_scores(logprobs: Any, mask: Any, reduction: int = _ffi.MM_REDUCE_SUM) -> np.ndarray:
    """Scores [rows] of logprobs [rows, length], float64."""
    given = _matrix(logprobs, "logprobs")
    counted, scores = integers(mask, "mask", given.shape), np.empty(given.shape[0])
    lib.mm_sequence_scores(pointer(scores), pointer(given), pointer(counted), *given.shape, reduction)
    return scores


def dpo(logprobs: Any, ref_scores: Any, mask: Any, **options: Any) -> tuple[dict[str, float], np.ndarray]:
    """Direct preference optimisation over 2N rows, the chosen ones first: the result and d_logprobs. `options`: beta,
    reduction."""
    given = _matrix(logprobs, "logprobs")
    rows, length = given.shape
    if rows % 2:
        raise ValueError(f"logprobs has {rows} rows; pairs need an even number")
    scores, counted = floats(ref_scores, "ref_scores", (rows,), np.float64), integers(mask, "mask", given.shape)
    wanted, out, gradient = struct(_ffi.mm_dpo_options, **options), struct(_ffi.mm_dpo_result), np.empty_like(given)
    lib.mm_dpo(ctypes.byref(wanted), rows // 2, length, pointer(given), pointer(scores), pointer(counted),
               pointer(gradient), ctypes.byref(out))
    return as_dict(out), gradient


def distill(student: Any, teacher: Any, targets: Any, **options: Any) -> tuple[dict[str, float], np.ndarray]:
    """Distillation of logits [rows, V] from a teacher's [rows, V' ≥ V]: the result and d_student. `options`: the fields
    of mm_distill_options."""
    given, taught = _matrix(student, "student"), _matrix(teacher, "teacher")
    rows, vocab = given.shape
    if taught.shape[0] != rows:
        raise ValueError(f"teacher has {taught.shape[0]} rows, student {rows}")
    wanted, out, gradient = struct(_ffi.mm_distill_options, **options), struct(_ffi.mm_distill_result), np.empty_like(given)
    goals = integers(targets, "targets", (rows,))
    lib.mm_distill(ctypes.byref(wanted), rows, vocab, taught.shape[1], pointer(given), pointer(taught), pointer(goals),
                   pointer(gradient), ctypes.byref(out))
    return as_dict(out), gradient


def group_advantages(rewards: Any, group: int) -> np.ndarray:
    """Advantages within consecutive groups of answers, float64."""
    given = floats(rewards, "rewards", dtype=np.float64).ravel()
    out = np.empty_like(given)
    lib.mm_group_advantages(pointer(out), pointer(given), given.size, group)
    return out


def policy_loss(logprobs: Any, old_logprobs: Any, mask: Any, advantages: Any, ref_logprobs: Any = None,
                **options: Any) -> tuple[dict[str, float], np.ndarray]:
    """GRPO or CISPO over answers [rows, length]: the result and d_logprobs. `options`: beta, epsilon, epsilon_high,
    variant."""
    given = _matrix(logprobs, "logprobs")
    old = floats(old_logprobs, "old_logprobs", given.shape)
    ref = None if ref_logprobs is None else floats(ref_logprobs, "ref_logprobs", given.shape)
    counted = integers(mask, "mask", given.shape)
    weights = floats(advantages, "advantages", (given.shape[0],), np.float64)
    wanted, out, gradient = struct(_ffi.mm_policy_options, **options), struct(_ffi.mm_policy_result), np.empty_like(given)
    lib.mm_policy_loss(ctypes.byref(wanted), *given.shape, pointer(given), pointer(old), pointer(ref), pointer(counted),
                       pointer(weights), pointer(gradient), ctypes.byref(out))
    return as_dict(out), gradient


def gae(rewards: Any, values: Any, mask: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns [rows, length], float64, of per-token rewards and the values expected. `options`: gamma,
    lambda_, normalize."""
    expected = _matrix(values, "values")
    if "lambda_" in options:
        options["lambda"] = options.pop("lambda_")
    earned, counted = floats(rewards, "rewards", expected.shape, np.float64), integers(mask, "mask", expected.shape)
    wanted, advantages, returns = struct(_ffi.mm_gae_options, **options), np.empty(expected.shape), np.empty(expected.shape)
    lib.mm_gae(ctypes.byref(wanted), *expected.shape, pointer(earned), pointer(expected), pointer(counted),
               pointer(advantages), pointer(returns))
    return advantages, returns


def ppo_loss(logprobs: Any, old_logprobs: Any, values: Any, old_values: Any, mask: Any, advantages: Any, returns: Any,
             ref_logprobs: Any = None, **options: Any) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """PPO over answers [rows, length]: the result, d_logprobs and d_values. `options`: the fields of mm_ppo_options."""
    given = _matrix(logprobs, "logprobs")
    shape = given.shape
    old, now = floats(old_logprobs, "old_logprobs", shape), floats(values, "values", shape)
    before, counted = floats(old_values, "old_values", shape), integers(mask, "mask", shape)
    ref = None if ref_logprobs is None else floats(ref_logprobs, "ref_logprobs", shape)
    better, earned = floats(advantages, "advantages", shape, np.float64), floats(returns, "returns", shape, np.float64)
    wanted, out = struct(_ffi.mm_ppo_options, **options), struct(_ffi.mm_ppo_result)
    d_logprobs, d_values = np.empty_like(given), np.empty_like(given)
    lib.mm_ppo_loss(ctypes.byref(wanted), *shape, pointer(given), pointer(old), pointer(ref), pointer(now), pointer(before),
                    pointer(counted), pointer(better), pointer(earned), pointer(d_logprobs), pointer(d_values),
                    ctypes.byref(out))
    return as_dict(out), d_logprobs, d_values


def reward_repetition(ids: Any, n: int = 3) -> float:
    """The share of an answer's n-grams of ids that it has said before."""
    given, share = integers(ids, "ids").ravel(), ctypes.c_double()
    lib.mm_reward_repetition(ctypes.byref(share), pointer(given), given.size, n)
    return share.value
