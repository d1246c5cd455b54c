"""Report: what a training loop tells, as metrics.jsonl, TensorBoard files and one page with curves."""
from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np

from . import _ffi
from ._library import Handle, c_strings, create, lib, path, struct, text

if TYPE_CHECKING:
    from .context import Context
    from .tokenizer import Tokenizer


class Report(Handle):
    """Keeps a run's values in files that people and other tools can read; any training loop may use it.

        with Report("out/report", title="my run", total_steps=1000) as report:
            report.add(step, loss=loss, learning_rate=rate)
            report.add(step, {"Once upon a time": story})
            report.flush()                                      # draws out/report/report.html
    """

    def __init__(self, directory: str | os.PathLike[str], **options: Any) -> None:
        """`options`: the fields of mm_report_options: title, resume_step, total_steps, outputs."""
        wanted = struct(_ffi.mm_report_options, **options)
        self._handle = create(_ffi.mm_report, lib.mm_report_create, lib.mm_report_free, path(directory),
                              ctypes.byref(wanted))

    def add(self, step: int, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Add values at a step, by name: numbers, sequences of numbers, or texts."""
        scalars: dict[str, float] = {}
        for name, value in {**(values or {}), **more}.items():
            if isinstance(value, str):
                data = value.encode("utf-8", "surrogatepass")
                lib.mm_report_text(self, step, text(name), data, len(data))
            elif np.ndim(value) > 0:
                vector = np.ascontiguousarray(value, dtype=np.float64).ravel()
                lib.mm_report_vector(self, step, text(name),
                                     vector.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), len(vector))
            else:
                scalars[name] = float(value)
        if scalars:
            names, _ = c_strings(scalars, "names")
            numbers = (ctypes.c_double * len(scalars))(*scalars.values())
            lib.mm_report_scalars(self, step, names, numbers, len(scalars))

    def fact(self, name: str, value: Any) -> None:
        """Say something about the run as a whole, for the head of the page."""
        lib.mm_report_fact(self, text(name), text(str(value)))

    def samples(self, step: int, context: Context, tokenizer: Tokenizer, prompts: Sequence[str], *,
                sampling: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Let the model go on with prompts and add what it writes. `sampling`: the fields of mm_sampling; none takes the
        likeliest token. `options`: the fields of mm_samples_options."""
        given, count = c_strings(prompts, "prompts")
        wanted = struct(_ffi.mm_samples_options, prompts=given, count=count, **options)
        if sampling is not None:
            drawn = struct(_ffi.mm_sampling, **sampling)
            wanted.sampling = ctypes.pointer(drawn)
        lib.mm_report_samples(self, step, context, tokenizer, ctypes.byref(wanted))

    def flush(self) -> None:
        """Redraw report.html."""
        lib.mm_report_flush(self)
