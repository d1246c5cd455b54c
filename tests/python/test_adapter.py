"""Adapters: learning, saving, choosing, merging."""
from __future__ import annotations

import json

import numpy as np

import minimind
from support import Case, tiny_model

IDS = np.arange(12).reshape(2, 6) % 7


class Adapters(Case):
    def setUp(self):
        super().setUp()
        self.model = tiny_model()

    def learnt(self, **options):
        adapter = minimind.Adapter(self.model, **options)
        with minimind.Context(self.model, train=True, max_batch=2, max_length=6, adapter=adapter) as context, \
                minimind.Optimizer(adapter) as optimizer:
            losses = []
            for _ in range(8):
                context.zero_grad()
                losses.append(context.forward(IDS, np.roll(IDS, -1, 1), train=True).loss)
                context.backward()
                optimizer.step(context, 0.05)
            self.assertEqual(set(context.gradients), set(adapter.weights))
        self.assertLess(losses[-1], losses[0])
        return adapter

    def logits(self, model, adapters=(), weights=None):
        with minimind.Context(model, max_batch=2, max_length=6, outputs=minimind.MM_OUT_LOGITS) as context:
            context.set_adapters(adapters, weights)
            return context.forward(IDS).logits.copy()

    def test_an_adapter_learns_and_the_model_stays(self):
        before = {name: weight.copy() for name, weight in self.model.weights.items()}
        self.learnt(targets="*")
        for name, weight in self.model.weights.items():
            np.testing.assert_array_equal(weight, before[name])

    def test_adapters_are_chosen_weighed_and_merged(self):
        adapter, plain = self.learnt(), self.logits(self.model)
        beside = self.logits(self.model, [adapter])
        self.assertFalse(np.array_equal(beside, plain))
        np.testing.assert_array_equal(self.logits(self.model, [adapter], [0.0]), plain)
        merged = minimind.merged(self.model, [adapter])
        np.testing.assert_allclose(self.logits(merged), beside, rtol=1e-4, atol=1e-5)
        self.assertRaises(ValueError, self.logits, self.model, [adapter], [1, 2])

    def test_what_was_saved_is_read_back(self):
        adapter = self.learnt(rank=3, alpha=9, targets="q_proj,down_proj")
        adapter.save(self.directory / "lora")
        self.assertEqual(json.loads((self.directory / "lora/adapter_config.json").read_text())["r"], 3)
        again = minimind.Adapter.load(self.model, self.directory / "lora")
        self.assertEqual((again.options["rank"], again.options["alpha"]), (3, 9))
        self.assertEqual(again.parameters, adapter.parameters)
        for name, weight in adapter.weights.items():
            np.testing.assert_array_equal(weight, again.weights[name])
        self.assertRaises(minimind.FileError, minimind.Adapter.load, self.model, self.directory / "nothing")

    def test_tensors_can_be_written(self):
        adapter = minimind.Adapter(self.model, targets="v_proj", rank=2)
        name = next(iter(adapter.weights))
        with adapter.writing(name) as weight:
            weight[:] = 3
        self.assertEqual(adapter.weights[name].max(), 3)
        self.assertRaises(ValueError, adapter.weights[name].__setitem__, 0, 1)
        self.assertRaises(minimind.ArgumentError, minimind.Adapter, self.model, targets="c_attn")

    def test_some_of_a_models_tensors_are_trained(self):
        with minimind.Context(self.model, train=True, max_batch=2, max_length=6, trainable="model.norm") as context:
            context.forward(IDS, IDS, train=True)
            context.backward()
            self.assertGreater(np.abs(context.gradients["model.norm.weight"]).max(), 0)
            self.assertRaises(minimind.StateError, context.gradients.__getitem__, "model.embed_tokens.weight")
            self.assertEqual([name for name, _ in context.gradients.items()], ["model.norm.weight"])
            self.assertEqual(len(context.gradients), 1)
            self.assertNotIn("model.embed_tokens.weight", context.gradients)
            self.assertNotIn("no such", context.gradients)
