"""A forward and backward pass against torch's own automatic differentiation, where torch is installed."""
from __future__ import annotations

import unittest

import numpy as np

import minimind
from support import Case, tiny_model

try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(Case):
    def test_logits_loss_and_gradients_agree(self):
        model, ids = tiny_model(), np.arange(14).reshape(2, 7) + 65
        targets = np.roll(ids, -1, 1)
        with minimind.Context(model, train=True, max_batch=2, max_length=7, threads=1,
                              outputs=minimind.MM_OUT_LOSS | minimind.MM_OUT_LOGITS) as context:
            context.zero_grad()
            output = context.forward(ids, targets, train=True)
            context.backward()
            weights = {name: torch.tensor(array, requires_grad=True) for name, array in model.weights.items()}
            logits = self.forward(model.config, weights, torch.tensor(ids))
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten())
            loss.backward()
            np.testing.assert_allclose(output.logits, logits.detach().numpy(), atol=1e-4)
            self.assertAlmostEqual(output.loss, float(loss), places=5)
            for name, gradient in context.gradients.items():
                np.testing.assert_allclose(gradient, weights[name].grad.numpy(), atol=1e-5, err_msg=name)

    @staticmethod
    def forward(config, weights, ids):
        """RMSNorm, rotary positions in split halves, grouped queries, SwiGLU, a tied head."""
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        size, eps = config["hidden_size"] // heads, config["rms_norm_eps"]
        rows, length = ids.shape

        def norm(x, weight):
            return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

        angles = torch.outer(torch.arange(length).float(), config["rope_theta"] ** (-torch.arange(0, size, 2).float() / size))
        cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

        def rotate(x):
            half = torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1)
            return x * cos + half * sin

        def split(x, count):
            return x.view(rows, length, count, size).transpose(1, 2)

        x = weights["model.embed_tokens.weight"][ids]
        for i in range(config["num_hidden_layers"]):
            w = lambda name: weights[f"model.layers.{i}.{name}.weight"]
            h = norm(x, w("input_layernorm"))
            q, k, v = (split(h @ w(f"self_attn.{name}_proj").T, count) for name, count in
                       (("q", heads), ("k", groups), ("v", groups)))
            k, v = (y.repeat_interleave(heads // groups, 1) for y in (rotate(k), v))
            scores = rotate(q) @ k.transpose(-1, -2) / size ** 0.5
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
            attended = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, -1)
            x = x + attended @ w("self_attn.o_proj").T
            h = norm(x, w("post_attention_layernorm"))
            gated = torch.nn.functional.silu(h @ w("mlp.gate_proj").T) * (h @ w("mlp.up_proj").T)
            x = x + gated @ w("mlp.down_proj").T
        return norm(x, weights["model.norm.weight"]) @ weights["model.embed_tokens.weight"].T
