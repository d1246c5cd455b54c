"""libminimind for Python: configure, train, save and run MiniMind-family language models through the C library.

    import minimind

    with minimind.Model.from_pretrained("out/model") as model:
        for piece in model.generate("Once upon a time"):
            print(piece, end="", flush=True)

Pure ctypes: nothing is compiled, and other Python threads run while the library works. Objects are context managers;
close them in any order. Arrays of weights, gradients and logits show the library's memory without copying and keep it
alive. What the library refuses is a MinimindError with its message.
"""
from __future__ import annotations

from . import _ffi, evaluate, objective
from .adapter import Adapter, AdapterWeights, merged
from .chat import Chat, Reply, ToolCall
from .config import Config, Key, TensorInfo, config_keys, presets
from .context import Batch, Context, Gradients, Output, kernels
from .data import Dataset, Loader, Prompt
from .errors import (ArgumentError, CancelledError, FileError, FormatError, InternalError, LibraryNotFoundError,
                     MinimindError, NumericError, OutOfMemoryError, StateError, UnsupportedError)
from .generate import Cache, Generated, generate
from .report import Report
from .runtime import load_library, memory_reset_peak, memory_usage, set_log, version
from .model import Model, Weights
from .optim import Optimizer, ValueHead, schedule_lr
from .tokenizer import Decoder, Tokenizer
from .train import Answer, Policy, Progress, Trainer, distill_cache_write

__version__ = "0.1.0"

# The header's constants, MM_TRAIN, MM_OUT_LOGITS and the like, under their own names.
globals().update({_name: _value for _name, _value in vars(_ffi).items() if _name.startswith("MM_")})

# Not the modules, whose names (data, model, train…) are everybody's: but these two, which have no other.
__all__ = ["evaluate", "objective", *(_name for _name, _value in globals().items() if not _name.startswith("_")
                                      and _name != "annotations" and not isinstance(_value, type(evaluate)))]
