"""Config, Model, Context: what numpy sees, how long it lives, what is refused."""
from __future__ import annotations

import gc
import itertools
import tempfile
import threading
import time
import weakref

import numpy as np

import minimind
from minimind import MM_OUT_HIDDEN, MM_OUT_LAST_LOGITS, MM_OUT_LOGITS, MM_OUT_LOGPROBS, MM_OUT_LOSS
from support import Case, byte_tokenizer, no_such, tiny_config, tiny_model

ALL = MM_OUT_LOSS | MM_OUT_LOGITS | MM_OUT_LAST_LOGITS | MM_OUT_LOGPROBS | MM_OUT_HIDDEN
IDS = np.arange(16).reshape(2, 8) + 65


def training(model, **options):
    return minimind.Context(model, **{"train": True, "max_batch": 2, "max_length": 8, "threads": 1, "outputs": ALL, **options})


class Configs(Case):
    def test_fields_are_set_read_and_forgotten(self):
        config = minimind.Config("minimind2", hidden_size=64, rope_theta=5, use_moe=True)
        self.assertEqual((config["hidden_size"], config["rope_theta"], config["use_moe"]), (64, 5.0, True))
        self.assertIsInstance(config["rope_theta"], float)
        self.assertEqual(config["hidden_act"], "silu")
        del config["use_moe"]
        self.assertIs(config["use_moe"], False)

    def test_every_preset_counts_what_its_layout_holds(self):
        for name in minimind.presets():
            config = minimind.Config(name)
            self.assertEqual(config.parameters()["total"], sum(info.elements for info in config.layout()), name)

    def test_a_file_brings_it_back(self):
        config = tiny_config()
        config.save(self.directory)
        again = minimind.Config.load(self.directory)
        self.assertEqual(again["hidden_size"], 32)
        text = (self.directory / "config.json").read_text()
        self.assertEqual(minimind.Config.from_json(text).parameters(), config.parameters())

    def test_a_copy_is_its_own(self):
        config = tiny_config()
        copy = config.copy()
        copy["hidden_size"] = 64
        self.assertEqual(config["hidden_size"], 32)

    def test_costs_are_told_before_anything_is_built(self):
        config = tiny_config()
        memory = config.estimate_memory(mode=minimind.MM_TRAIN, optimizer=1, max_length=64)
        self.assertEqual(memory["weights"], memory["gradients"])
        self.assertGreater(config.estimate_flops(max_length=64)["total"], 2 * config.parameters()["total"])

    def test_nonsense_is_refused_with_the_librarys_message(self):
        config = tiny_config()
        for name, value in (("hidden_size", 0), ("no_such_key", 1), ("no_such_key", "x"), ("hidden_act", 3.5)):
            with self.assertRaises(minimind.ArgumentError) as caught:
                config[name] = value
            self.assertIn(name, str(caught.exception))
        with self.assertRaises(KeyError):
            config["no_such_key"]
        with self.assertRaises(ValueError):
            config["hidden_size"] = 2**70
        with self.assertRaises(ValueError):
            config["hidden_act"] = "si\0lu"
        with self.assertRaises(TypeError):
            config.estimate_memory(no_such_field=1)
        config["num_attention_heads"] = 3
        with self.assertRaisesRegex(minimind.ArgumentError, "heads"):
            config.validate()
        with self.assertRaisesRegex(minimind.ArgumentError, "no-such-preset"):
            minimind.Config("no-such-preset")


class Errors(Case):
    def test_each_status_is_an_exception_with_message_and_status(self):
        with self.assertRaisesRegex(minimind.FileError, "no such directory") as caught:
            minimind.Model.from_pretrained(no_such("model"))
        self.assertIsInstance(caught.exception, OSError)
        self.assertEqual(caught.exception.status, minimind.MM_ERR_IO)
        with self.assertRaises(minimind.FormatError) as caught:
            minimind.Config.from_json("{")
        self.assertIsInstance(caught.exception, ValueError)
        for number in (5, [7]):
            self.assertRaisesRegex(TypeError, "json: a str or bytes", minimind.Config.from_json, number)
        with self.assertRaises(minimind.UnsupportedError) as caught:
            minimind.Config.from_json('{"model_type": "abacus"}')
        self.assertIsInstance(caught.exception, NotImplementedError)
        with self.assertRaises(minimind.StateError) as caught:
            minimind.Context(tiny_model(), max_length=8).backward()
        self.assertIsInstance(caught.exception, RuntimeError)
        self.assertIsInstance(caught.exception, minimind.MinimindError)

    def test_a_failed_construction_leaves_nothing(self):
        before = minimind.memory_usage()["current"]
        for _ in range(3):
            with self.assertRaises(minimind.MinimindError):
                minimind.Config("minimind2", hidden_size=-1)
        gc.collect()
        self.assertEqual(minimind.memory_usage()["current"], before)

    def test_a_closed_handle_says_so(self):
        model, config, tokenizer = tiny_model(), tiny_config(), byte_tokenizer()
        for handle, use in ((model, lambda: model.config), (config, lambda: config["hidden_size"]),
                            (tokenizer, lambda: tokenizer.encode("a")), (model, lambda: minimind.Context(model))):
            handle.close()
            handle.close()
            self.assertTrue(handle.closed)
            with self.assertRaisesRegex(minimind.StateError, "closed"):
                use()
        with self.assertRaisesRegex(minimind.StateError, "Model is closed"):
            with model:
                pass

    def test_handles_of_another_kind_are_refused(self):
        model, tokenizer = tiny_model(), byte_tokenizer()
        dataset = minimind.Dataset(self.put_rows("rows.jsonl", [{"text": "abc"}]))
        loader = minimind.Loader(dataset, tokenizer, max_length=8)
        for name, needed, make in (
                ("config", "Config", minimind.Model),
                ("model", "Model", minimind.Cache), ("model", "Model", minimind.Context),
                ("model", "Model", lambda wrong: minimind.Adapter.load(wrong, "nowhere")),
                ("model", "Model", lambda wrong: minimind.Trainer(wrong, loader)),
                ("loader", "Loader", lambda wrong: minimind.Trainer(model, wrong)),
                ("validation", "Loader", lambda wrong: minimind.Trainer(model, loader, validation=wrong)),
                ("reference", "Model", lambda wrong: minimind.Policy(len, reference=wrong)),
                ("dataset", "Dataset", lambda wrong: minimind.Loader(wrong, tokenizer, max_length=8)),
                ("tokenizer", "Tokenizer", lambda wrong: minimind.Loader(dataset, wrong, max_length=8)),
                ("tokenizer", "Tokenizer", minimind.Chat().format), ("tokenizer", "Tokenizer", minimind.Chat().encode),
                ("adapter", "Adapter", lambda wrong: minimind.Context(model, max_length=8, adapter=wrong)),
                ("adapter", "Adapter", lambda wrong: minimind.Context(model, max_length=8).set_adapters([wrong])),
                ("cache", "Cache", lambda wrong: minimind.Context(model, max_length=8).forward([1], cache=wrong)),
                ("cache", "Cache", minimind.Cache(model, capacity=8).fork),
                ("context", "Context", lambda wrong: minimind.evaluate.loss(wrong, loader)),
                ("report", "Report", lambda wrong: minimind.evaluate.prompts(minimind.Context(model, max_length=8), tokenizer,
                                                                              dataset, report=wrong))):
            for wrong in ("other", 7, minimind.Decoder(tokenizer)):
                with self.subTest(name, wrong=wrong):
                    self.assertRaisesRegex(TypeError, f"^{name}: a minimind.{needed} is needed, not ", make, wrong)


class Weights(Case):
    def test_a_view_shares_the_models_memory(self):
        model = tiny_model()
        first, second = model.weights["model.norm.weight"], model.weights["model.norm.weight"]
        self.assertTrue(np.shares_memory(first, second))
        self.assertFalse(first.flags.writeable)
        with model.writing("model.norm.weight") as weight:
            self.assertTrue(np.shares_memory(first, weight))
            weight[3] = 7.5
        self.assertEqual(first[3], 7.5)
        with self.assertRaises(ValueError):
            first[0] = 1

    def test_views_have_the_layouts_names_and_shapes(self):
        model = tiny_model()
        layout = model.config.layout()
        self.assertEqual(list(model.weights), [info.name for info in layout])
        self.assertEqual([array.shape for array in model.weights.values()], [info.shape for info in layout])
        with self.assertRaises(KeyError):
            model.weights["no.such.tensor"]
        with self.assertRaises(KeyError):
            with model.writing("no.such.tensor"):
                pass

    def test_writing_changes_what_the_model_says(self):
        model = tiny_model()
        with training(model) as context:
            before = context.forward(IDS).logits.copy()
            with model.writing("model.norm.weight") as weight:
                weight *= 2
            np.testing.assert_allclose(context.forward(IDS).logits, 2 * before, rtol=1e-4, atol=1e-5)

    def test_a_view_outlives_every_handle(self):
        model = tiny_model()
        native = weakref.ref(model._native)
        view = model.weights["model.embed_tokens.weight"][10:20]
        copy = view.copy()
        model.close()
        del model
        gc.collect()
        self.assertIsNotNone(native())
        np.testing.assert_array_equal(view, copy)
        del view
        gc.collect()
        self.assertIsNone(native())

    def test_half_precision_shows_as_it_is(self):
        model = tiny_model()
        name = "model.embed_tokens.weight"
        exact = model.weights[name]
        self.assertEqual(model.cast(minimind.MM_F16).weights[name].dtype, np.float16)
        bits = model.cast(minimind.MM_BF16).weights[name]
        self.assertEqual(bits.dtype, np.uint16)
        widened = (bits.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_allclose(widened, exact, rtol=2**-8)

    def test_blocks_are_close_and_say_what_they_are(self):
        model = tiny_model()
        blocks = model.quantize(minimind.MM_Q8_0)
        with training(model) as exact, minimind.Context(blocks, max_batch=2, max_length=8, outputs=MM_OUT_LOGITS) as near:
            np.testing.assert_allclose(near.forward(IDS).logits, exact.forward(IDS).logits, atol=0.05)
        with self.assertRaises(minimind.ArgumentError):
            model.quantize(minimind.MM_F16)

    def test_a_quantized_directory_brings_the_same_blocks_back(self):
        blocks = tiny_model().quantize(minimind.MM_Q4_0)
        blocks.save_pretrained(self.directory / "blocks")
        with minimind.Context(blocks, max_batch=2, max_length=8, outputs=MM_OUT_LOGITS) as saved:
            expected = saved.forward(IDS).logits.copy()
        for options in ({}, {"map": True}, {"keep_dtype": True}):
            again = minimind.Model.from_pretrained(self.directory / "blocks", **options)
            with minimind.Context(again, max_batch=2, max_length=8, outputs=MM_OUT_LOGITS) as loaded:
                np.testing.assert_array_equal(loaded.forward(IDS).logits, expected)

    def test_a_directory_brings_the_same_weights_back(self):
        model = tiny_model()
        model.tokenizer = byte_tokenizer()
        model.save_pretrained(self.directory / "model")
        for options in ({}, {"map": True}):
            again = minimind.Model.from_pretrained(self.directory / "model", **options)
            for name, array in model.weights.items():
                np.testing.assert_array_equal(again.weights[name], array)
            self.assertEqual(again.tokenizer.vocab_size, 259)
        with self.assertRaises(minimind.StateError):
            with again.writing("model.norm.weight"):
                pass
        image = (self.directory / "model" / "model.safetensors").read_bytes()
        self.assertEqual(len(minimind.Model.from_bytes(model.config, image).weights), len(model.weights))
        with self.assertRaises(minimind.FormatError):
            minimind.Model.from_bytes(model.config, image[:100])


class Contexts(Case):
    def test_outputs_are_views_of_the_contexts_memory(self):
        with training(tiny_model()) as context:
            first = context.forward(IDS, IDS)
            self.assertEqual((first.logits.shape, first.logprobs.shape, first.hidden.shape, first.last_logits.shape),
                             ((2, 8, 259), (2, 8), (2, 8, 32), (2, 259)))
            np.testing.assert_allclose(first.logits[:, -1], first.last_logits, atol=1e-5)
            kept = first.logits.copy()
            second = context.forward(IDS[:, ::-1], IDS)
            self.assertTrue(np.shares_memory(first.logits, second.logits))
            self.assertFalse(np.array_equal(first.logits, kept))
            self.assertIsNone(context.forward(IDS, outputs=MM_OUT_LAST_LOGITS).logits)

    def test_the_loss_is_that_of_the_logits(self):
        with training(tiny_model()) as context:
            targets = IDS + 1
            targets[0, :3] = -100
            output = context.forward(IDS, targets)
            logits = output.logits.astype(np.float64)
            logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            picked = np.take_along_axis(logprobs, np.maximum(targets, 0)[..., None], -1)[..., 0]
            self.assertEqual(output.loss_count, 13)
            self.assertAlmostEqual(output.loss, -picked[targets >= 0].mean(), places=5)

    def test_what_is_given_beside_a_batch_counts_more_than_its_own(self):
        own, one = minimind.Batch(IDS, IDS), np.full(IDS.shape, -100)
        one[0, 0] = 5
        with training(tiny_model()) as context:
            self.assertEqual(context.forward(own).loss_count, IDS.size)
            self.assertEqual(context.forward(own, one).loss_count, 1)
            logits = context.forward(own).logits.copy()
            apart = context.forward(own, document_ids=np.arange(8) // 4 * np.ones((2, 1), int)).logits
            self.assertFalse(np.array_equal(logits, apart))

    def test_products_may_be_of_fewer_bits(self):
        model = tiny_model()
        losses = []
        for compute in minimind.MM_F32, minimind.MM_BF16, minimind.MM_F16:
            with minimind.Context(model, max_batch=2, max_length=8, outputs=minimind.MM_OUT_LOSS, compute=compute) as context:
                losses.append(context.forward(IDS, IDS + 1).loss)
        self.assertEqual(len(set(losses)), 3)
        np.testing.assert_allclose(losses, losses[0], rtol=1e-2)
        self.assertRaises(minimind.ArgumentError, minimind.Context, model, compute=minimind.MM_Q8_0)

    def test_gradients_are_writable_views_and_agree_with_differences(self):
        model = tiny_model()
        name = "model.norm.weight"
        with training(model) as context:
            context.zero_grad()
            context.forward(IDS, IDS + 1, train=True)
            context.backward()
            gradient = context.gradients[name]
            losses = []
            for change in (1e-2, -1e-2):
                with model.writing(name) as weight:
                    weight[5] += change
                losses.append(context.forward(IDS, IDS + 1).loss)
                with model.writing(name) as weight:
                    weight[5] -= change
            self.assertAlmostEqual((losses[0] - losses[1]) / 2e-2, float(gradient[5]), places=4)
            norm = np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in context.gradients.values()))
            self.assertAlmostEqual(context.grad_norm(), norm, places=5)
            gradient[...] = 0
            self.assertLess(context.grad_norm(), norm)
            context.zero_grad()
            self.assertEqual(context.grad_norm(), 0)

    def test_a_loss_of_ones_own_goes_back_as_d_logits(self):
        with training(tiny_model()) as context:
            context.zero_grad()
            output = context.forward(IDS, IDS + 1, train=True)
            logits = output.logits
            probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            context.backward()
            own = {name: array.copy() for name, array in context.gradients.items()}
            context.zero_grad()
            context.forward(IDS, IDS + 1, train=True)
            onehot = np.eye(259)[IDS + 1]
            context.backward(d_logits=(probabilities - onehot) / IDS.size)
            for name, array in context.gradients.items():
                np.testing.assert_allclose(array, own[name], rtol=1e-3, atol=1e-6, err_msg=name)

    def test_gradients_of_contexts_add_up(self):
        model = tiny_model()
        with training(model) as one, training(model) as two:
            for context in (one, two):
                context.zero_grad()
                context.forward(IDS, IDS, train=True)
                context.backward()
            norm = one.grad_norm()
            one.grad_add(two)
            self.assertAlmostEqual(one.grad_norm(), 2 * norm, places=5)

    def test_arrays_of_a_wrong_kind_or_shape_never_reach_c(self):
        with training(tiny_model()) as context:
            for kind, call in ((TypeError, lambda: context.forward([[1.5, 2.0]])),
                               (ValueError, lambda: context.forward(IDS, IDS[:, :4])),
                               (ValueError, lambda: context.forward(IDS, attention_mask=IDS[:1])),
                               (ValueError, lambda: context.forward([[2**40]])),
                               (ValueError, lambda: context.forward(np.zeros((1, 1, 1), int)))):
                self.assertRaises(kind, call)
            with self.assertRaisesRegex(minimind.ArgumentError, "259"):
                context.forward([[259]])
            with self.assertRaises(minimind.ArgumentError):
                context.forward(np.zeros((3, 8), int))
            with self.assertRaises(minimind.StateError):
                context.backward(d_logits=np.zeros((2, 8, 259)))
            context.forward(IDS, IDS, train=True)
            with self.assertRaises(ValueError):
                context.backward(d_logits=np.zeros((2, 8, 258)))

    def test_a_cache_goes_on_where_it_stood(self):
        model = tiny_model()
        with minimind.Context(model, max_length=8, max_context=32) as context, minimind.Cache(model, 1, 32) as cache:
            whole = context.forward(IDS[:1]).last_logits.copy()
            context.forward(IDS[:1, :5], cache=cache)
            np.testing.assert_allclose(context.forward(IDS[:1, 5:], cache=cache).last_logits, whole, rtol=1e-4, atol=1e-5)
            self.assertEqual(cache.length(), 8)
            cache.truncate(3)
            self.assertEqual((cache.length(), cache.length(7)), (3, -1))
            with self.assertRaises(minimind.ArgumentError):
                cache.truncate(5)

    def test_a_cache_in_fewer_bits_is_forked_saved_and_loaded(self):
        model = tiny_model()
        with minimind.Context(model, max_length=8, max_context=32) as context, tempfile.TemporaryDirectory() as directory:
            cache, chats = minimind.Cache(model, 1, 32, minimind.MM_BF16), minimind.Cache(model, 3, 16, minimind.MM_BF16)
            context.forward(IDS[:1, :5], cache=cache)
            chats.fork(cache, length=4)
            self.assertEqual([chats.length(i) for i in range(4)], [4, 4, 4, -1])
            cache.save(f"{directory}/cache")
            loaded = minimind.Cache.load(model, f"{directory}/cache")
            self.assertEqual(loaded.length(), 5)
            expected = context.forward(IDS[:1, 5:], cache=cache).last_logits.copy()
            np.testing.assert_array_equal(context.forward(IDS[:1, 5:], cache=loaded).last_logits, expected)
            with self.assertRaises(minimind.ArgumentError):
                chats.fork(cache, length=9)
            with self.assertRaises(minimind.FileError):
                minimind.Cache.load(model, f"{directory}/absent")

    def test_cancelling_ends_the_next_call(self):
        with training(tiny_model()) as context:
            context.cancel()
            self.assertRaises(minimind.CancelledError, context.forward, IDS)
            context.forward(IDS)

    def test_handles_are_closed_in_any_order(self):
        for order in itertools.permutations(range(4)):
            model = tiny_model()
            context = training(model)
            optimizer, cache = minimind.Optimizer(model), minimind.Cache(model, 1, 8)
            gradients, logits = context.gradients["model.norm.weight"], context.forward(IDS).logits
            before = logits.sum()
            handles = [model, context, optimizer, cache]
            for i in order:
                handles[i].close()
            self.assertEqual(logits.sum(), before)
            self.assertEqual(gradients.sum(), 0)

    def test_all_memory_comes_back(self):
        gc.collect()
        before = minimind.memory_usage()["current"]
        with tiny_model() as model, training(model) as context, minimind.Optimizer(model) as optimizer:
            context.forward(IDS, IDS, train=True)
            context.backward()
            optimizer.step(context, 1e-3)
            self.assertGreater(minimind.memory_usage()["current"], before)
        del model, context, optimizer
        gc.collect()
        self.assertEqual(minimind.memory_usage()["current"], before)

    def test_python_runs_while_c_does(self):
        """The switch interval is long: only a call that lets go of the lock lets another thread count."""
        import sys
        model = tiny_model(hidden_size=256, num_hidden_layers=4)
        interval, counted, stop = sys.getswitchinterval(), [0], threading.Event()

        def count():
            while not stop.is_set():
                counted[0] += 1
                time.sleep(0)

        with minimind.Context(model, max_batch=8, max_length=128, threads=1, outputs=MM_OUT_LAST_LOGITS) as context:
            ids = np.ones((8, 128), dtype=np.int32)
            thread = threading.Thread(target=count)
            sys.setswitchinterval(1000)
            try:
                thread.start()
                before = counted[0]
                context.forward(ids)
                after = counted[0]
            finally:
                stop.set()
                thread.join()
                sys.setswitchinterval(interval)
        self.assertGreater(after, before)
