"""Context: running a model forward and back; logits and gradients as numpy sees them."""
from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterator, Sequence

import numpy as np

from . import _ffi
from ._arrays import IntArray, floats, integers, pointer, shaped, show
from ._library import Alone, Handle, create, lib, struct
from .adapter import Adapter, AdapterWeights, chosen
from .errors import StateError
from .model import Model

if TYPE_CHECKING:
    from .generate import Cache, Generated


@dataclass
class Batch:
    """What a loader gives: ids [B, T], targets [B, T] with -100 where none counts, document_ids when packed."""

    ids: np.ndarray
    targets: np.ndarray | None = None
    document_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return self.ids.shape[0]


@dataclass
class Output:
    """What a forward pass gave. Arrays show the context's memory without copying: the next pass overwrites it, so take a
    copy() of what is to stay. They keep that memory alive."""

    loss: float
    loss_sum: float
    loss_count: int
    aux_loss: float
    logprobs: np.ndarray | None
    last_logits: np.ndarray | None
    logits: np.ndarray | None
    hidden: np.ndarray | None


class Gradients(Mapping[str, np.ndarray]):
    """A context's gradients by tensor name: writable float32 arrays over its own memory, which they keep alive. Frozen
    tensors have none, and are not among them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        adapter = context._adapter
        names = context.model.weights if adapter is None else AdapterWeights(adapter)
        self._index = {name: i for i, name in enumerate(names)}
        self._held = list(self._index)
        if context._trainable is not None:
            native = context._native
            with Alone(native):   # what is in use would pass for frozen
                self._held = [name for name in self._index if self._learns(native, name)]

    def _learns(self, native: Any, name: str) -> bool:
        try:
            lib.mm_grad(native._as_parameter_, self._index[name], ctypes.byref(_ffi.mm_view()))
        except StateError:
            return False
        return True

    def __getitem__(self, name: str) -> np.ndarray:
        view, native = _ffi.mm_view(), self._context._native
        lib.mm_grad(native, self._index[name], ctypes.byref(view))
        return show(view, native, writable=True)

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def kernels() -> list[str]:
    """The kernel paths that this build and this processor have, slowest first."""
    return [lib.mm_kernels_name(i).decode() for i in range(lib.mm_kernels_count())]


class Context(Handle):
    """Everything a run needs, planned and allocated once: threads, buffers, gradients. One call at a time.

        with Context(model, train=True, max_batch=8, max_length=128) as context:
            output = context.forward(ids, targets, train=True)
            context.backward()
    """

    def __init__(self, model: Model, *, train: bool = False, max_batch: int = 1, max_length: int = 512,
                 max_context: int = 0, outputs: int = 0, threads: int = 0, checkpointing: bool = False,
                 router_noise: float = 0.0, kernels: str | None = None, adapter: Adapter | None = None,
                 trainable: str | None = None, compute: int = _ffi.MM_F32) -> None:
        """`outputs` are the MM_OUT_… that may be asked for, added together; 0: the loss in training, else the last
        logits. With `adapter` it is that which is trained, and the model stays; `trainable` are patterns of the model's
        tensors to train. `compute` is what products round their operands to: MM_F32, MM_BF16 or MM_F16."""
        options = struct(_ffi.mm_context_options, mode=_ffi.MM_TRAIN if train else _ffi.MM_EVAL, max_batch=max_batch,
                         max_length=max_length, max_context=max_context, outputs=outputs, threads=threads,
                         checkpointing=checkpointing, router_noise=router_noise, kernels=kernels, trainable=trainable,
                         compute=compute, adapter=adapter)
        self._adapter = None if adapter is None else adapter._native
        self._trainable = trainable
        self._handle = create(_ffi.mm_context, lib.mm_context_create, lib.mm_context_free, model, ctypes.byref(options))
        self._model = Model._wrap(model._native)   # of its own: the caller's may be closed first
        self._model.tokenizer = model.tokenizer
        self._shape: tuple[int, int] | None = None

    @property
    def model(self) -> Model:
        """The model it runs."""
        self._native   # a closed context has let go of it
        return self._model

    def close(self) -> None:
        """Let go of the context, and of its model and adapter."""
        super().close()
        self._model = self._adapter = None

    @property
    def kernels(self) -> str:
        """The kernel path it runs on."""
        return lib.mm_context_kernels(self).decode()

    def set_adapters(self, adapters: Sequence[Adapter], weights: Sequence[float] | None = None) -> None:
        """Run with these from now on, each times its weight; with none, as the model is."""
        lib.mm_context_set_adapters(self, *chosen(adapters, weights))

    def cancel(self) -> None:
        """Make the call that runs on this context, or else the next one, raise CancelledError. From any thread."""
        lib.mm_cancel(self)

    def forward(self, ids: IntArray | Batch, targets: IntArray | None = None, *, train: bool = False, outputs: int = 0,
                attention_mask: IntArray | None = None, position_ids: IntArray | None = None,
                document_ids: IntArray | None = None, cache: Cache | None = None, seed: int = 0) -> Output:
        """Run the network over ids [B, T] (or [T], one sequence), or a loader's batch, whose targets and document_ids are
        taken where none are given."""
        if isinstance(ids, Batch):
            targets = ids.targets if targets is None else targets
            document_ids = ids.document_ids if document_ids is None else document_ids
            ids = ids.ids
        tokens = np.atleast_2d(integers(ids, "ids"))
        if tokens.ndim != 2:
            raise ValueError(f"ids has shape {tokens.shape}; [B, T] is needed")
        rows, length = tokens.shape
        arrays = {"ids": tokens}
        for name, values in (("targets", targets), ("attention_mask", attention_mask), ("position_ids", position_ids),
                             ("document_ids", document_ids)):
            if values is not None:
                arrays[name] = np.atleast_2d(integers(values, name))
        batch = struct(_ffi.mm_batch, batch=rows, length=length, mode=_ffi.MM_TRAIN if train else _ffi.MM_EVAL,
                       outputs=outputs, seed=seed, cache=cache, **{name: pointer(array) for name, array in arrays.items()})
        out, native = struct(_ffi.mm_output), self._native
        with Alone(native, cache):   # from here on nobody makes the cache longer, or another pass
            past = max(0, lib.mm_cache_length.__wrapped__(cache._native, 0)) if cache is not None else 0
            for name, array in arrays.items():
                shaped(array, name, (rows, past + length if name == "attention_mask" else length))
            self._shape = None
            lib.mm_forward(native._as_parameter_, ctypes.byref(batch), ctypes.byref(out))
            self._shape = rows, length
        return Output(out.loss, out.loss_sum, out.loss_count, out.aux_loss, show(out.logprobs, native),
                      show(out.last_logits, native), show(out.logits, native), show(out.hidden, native))

    def backward(self, *, loss_scale: float = 1.0, aux_scale: float = 1.0, normalizer: float = 0.0,
                 d_logits: Any = None, d_logprobs: Any = None, d_hidden: Any = None) -> None:
        """Add the gradient of the last training pass to the gradients. The d_… arrays are gradients of a loss of one's
        own, in the shapes of the outputs they belong to."""
        arrays = {"d_logits": d_logits, "d_logprobs": d_logprobs, "d_hidden": d_hidden}
        given = {name: values for name, values in arrays.items() if values is not None}
        tail: dict[str, tuple[int, ...]] = {"d_logprobs": ()}
        if given:
            config = self.model.config
            tail.update(d_logits=(config["vocab_size"],), d_hidden=(config["hidden_size"],))
        held = {name: floats(values, name) for name, values in given.items()}
        options = struct(_ffi.mm_backward_options, loss_scale=loss_scale, aux_scale=aux_scale, normalizer=normalizer,
                         **{name: pointer(array) for name, array in held.items()})
        native = self._native
        with Alone(native):   # from here on nobody makes another pass
            if given and self._shape is None:
                raise StateError("there is no forward pass to go back over")
            for name, array in held.items():
                shaped(array, name, (*self._shape, *tail[name]))
            lib.mm_backward(native._as_parameter_, ctypes.byref(options))

    @property
    def gradients(self) -> Gradients:
        """Every gradient by tensor name, without copying."""
        return Gradients(self)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        lib.mm_zero_grad(self)

    def expert_load(self) -> np.ndarray | None:
        """[layers, experts] of the last forward pass: the share of a layer's choices that each routed expert got. None for a
        model without routed experts."""
        layers, needed = int(self.model.config["num_hidden_layers"]), ctypes.c_size_t()
        lib.mm_expert_load(self, 0, None, 0, ctypes.byref(needed))
        load = np.zeros((layers, needed.value))
        for layer in range(layers if needed.value else 0):
            lib.mm_expert_load(self, layer, load[layer].ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
                               needed.value, None)
        return load if needed.value else None

    def grad_norm(self) -> float:
        """The L2 norm of all gradients together."""
        out = ctypes.c_double()
        lib.mm_grad_norm(self, ctypes.byref(out))
        return out.value

    def grad_add(self, other: Context, scale: float = 1.0) -> None:
        """Add another context's gradients, times scale."""
        lib.mm_grad_add(self, other, scale)

    def generate(self, prompts: Sequence[IntArray], **options: Any) -> list[Generated]:
        """Continue several prompts of ids at once; see minimind.generate.generate()."""
        from .generate import generate
        return generate(self, prompts, **options)
