"""Tokenizer, Decoder, Chat, and generating text."""
from __future__ import annotations

import threading

import numpy as np

import minimind
from support import Case, byte_tokenizer, no_such, tiny_model

TEXTS = ["", "hello", "Grüße, 世界 🙂", "a\0b", "<|im_start|>user\nhi<|im_end|>", " \t\r\n"]


class Tokenizers(Case):
    def test_text_comes_back(self):
        with byte_tokenizer() as tokenizer:
            for text in TEXTS:
                ids = tokenizer.encode(text)
                self.assertEqual(ids.dtype, np.int32)
                self.assertEqual(tokenizer.decode(ids, skip_special=False), text)
                self.assertEqual(tokenizer.decode_bytes(ids, skip_special=False), text.encode())

    def test_special_tokens_are_known_and_left_out(self):
        tokenizer = byte_tokenizer()
        end = tokenizer.find("<|im_end|>")
        self.assertTrue(tokenizer.is_special(end))
        self.assertIsNone(tokenizer.find("no such token"))
        self.assertEqual(tokenizer.decode(tokenizer.encode("a<|im_end|>")), "a")
        self.assertGreater(len(tokenizer.encode("<|im_end|>", split=minimind.MM_SPLIT_NONE)), 1)

    def test_training_learns_pairs_tells_progress_and_saves(self):
        steps = []
        tokenizer = minimind.Tokenizer.train(["low lower lowest"] * 20, vocab_size=262, special_tokens=["<s>"],
                                             on_progress=lambda done, total: steps.append(done))
        self.assertEqual(tokenizer.find("<s>"), 0)
        self.assertLess(len(tokenizer.encode("low")), 3)
        self.assertTrue(steps)
        tokenizer.save(self.directory)
        text = (self.directory / "tokenizer.json").read_text()
        for again in (minimind.Tokenizer(self.directory), minimind.Tokenizer.from_json(text)):
            np.testing.assert_array_equal(again.encode("lowest"), tokenizer.encode("lowest"))

    def test_exceptions_of_callbacks_come_through(self):
        def texts():
            yield "a"
            raise KeyError("from texts")

        self.assertRaisesRegex(KeyError, "from texts", minimind.Tokenizer.train, texts())
        self.assertRaises(ZeroDivisionError, minimind.Tokenizer.train, ["abab"] * 9, on_progress=lambda *_: 1 / 0)
        self.assertRaises(minimind.CancelledError, minimind.Tokenizer.train, ["abab"] * 9, on_progress=lambda *_: True)
        self.assertRaises(TypeError, minimind.Tokenizer.train, [3])

    def test_a_decoder_never_gives_half_a_character(self):
        tokenizer = byte_tokenizer()
        with tokenizer.decoder() as decoder:
            tokenizer.close()
            pieces = [decoder.push(int(token)) for token in byte_tokenizer().encode("ü🙂\0")]
            self.assertEqual(pieces, ["", "ü", "", "", "", "🙂", "\0"])
            decoder.push(int(byte_tokenizer().encode("ü")[0]))
            self.assertEqual(decoder.flush(), "\ufffd")

    def test_nonsense_is_refused(self):
        tokenizer = byte_tokenizer()
        for ids in ([259], [-1]):
            self.assertRaises(minimind.ArgumentError, tokenizer.decode, ids)
        self.assertRaises(TypeError, tokenizer.decode, [0.5])
        self.assertRaises(ValueError, tokenizer.decode, [2**40])
        self.assertRaises(minimind.FileError, minimind.Tokenizer, no_such("tokenizer.json"))
        self.assertRaises(minimind.FormatError, minimind.Tokenizer.from_json, "[")
        self.assertRaisesRegex(TypeError, "json: a str or bytes", minimind.Tokenizer.from_json, 5)
        self.assertRaises(ValueError, minimind.Tokenizer, "a\0b")


class Chats(Case):
    def test_messages_become_a_prompt(self):
        with minimind.Chat() as chat, byte_tokenizer() as tokenizer:
            chat.add("user", "hi")
            text = chat.format(template_name="minimind3")
            self.assertTrue(text.startswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"), text)
            ids = chat.encode(tokenizer, template_name="minimind3")
            self.assertEqual(tokenizer.decode(ids, skip_special=False), text)
            self.assertEqual(chat.format(roles={"user_prefix": "U:", "assistant_prefix": "A:"}), "U:hiA:")

    def test_messages_are_a_list_that_can_be_changed(self):
        with minimind.Chat() as chat:
            chat.add("user", "one")
            chat.add_message([{"role": "assistant", "content": "two"}, {"role": "user", "content": "three ü"}])
            self.assertEqual([message["content"] for message in chat.messages], ["one", "two", "three ü"])
            chat.remove(0)
            chat.truncate(1)
            self.assertEqual((len(chat), chat.messages[0]["content"]), (1, "two"))
            self.assertRaises(minimind.ArgumentError, chat.remove, 5)
            self.assertRaises(minimind.FormatError, chat.add_message, {"content": "no role"})
            self.assertRaises(TypeError, chat.format, no_such_option=1)

    def test_a_reply_is_taken_apart(self):
        call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
        reply = minimind.Chat.parse(f"<think>\nhm\n</think>\n\nyes\n{call}<tool_call>broken</tool_call>")
        self.assertEqual(reply.reasoning, "hm")
        self.assertEqual(reply.content.strip(), "yes")
        self.assertEqual(reply.calls[0].name, "add")
        self.assertIn('"a"', reply.calls[0].arguments)
        self.assertTrue(reply.calls[1].problem)
        self.assertEqual(reply.flags, minimind.MM_REPLY_BAD_CALL)
        self.assertIsNone(minimind.Chat.parse("plain").reasoning)
        self.assertEqual(minimind.Chat.parse("x", in_thought=True).reasoning, "x")


class Generation(Case):
    def setUp(self):
        super().setUp()
        self.model = tiny_model()
        self.model.tokenizer = byte_tokenizer()

    def test_pieces_are_the_text_of_the_ids(self):
        options = dict(max_new_tokens=40, seed=7, temperature=1.5, top_p=1.0, repetition_penalty=1.3, stop_ids=[])
        pieces = list(self.model.generate("Once", **options))
        with minimind.Context(self.model, max_length=64) as context:
            made = context.generate([self.model.tokenizer.encode("Once")], **options)[0]
        self.assertEqual("".join(pieces), self.model.tokenizer.decode(made.ids))
        self.assertGreater(len(pieces), 5)
        self.assertEqual((len(made.ids), made.finish), (40, minimind.MM_FINISH_LENGTH))
        self.assertTrue((made.logprobs < 0).all())

    def test_the_seed_decides(self):
        def text(seed):
            return "".join(self.model.generate("a", max_new_tokens=30, seed=seed, stop_ids=[]))
        self.assertEqual(text(1), text(1))
        self.assertNotEqual(text(1), text(2))

    def test_sequences_are_independent(self):
        with minimind.Context(self.model, max_batch=2, max_length=32) as context:
            both = context.generate([[65, 66, 67], [68]], max_new_tokens=6, temperature=0, stop_ids=[])
            alone = context.generate([[68]], max_new_tokens=6, temperature=0, stop_ids=[])
            np.testing.assert_array_equal(both[1].ids, alone[0].ids)

    def test_a_context_s_own_cache_has_the_dtype_that_is_asked_for(self):
        def ways(dtype):
            cache = minimind.Cache(self.model, 1, 32, dtype)
            for how in {"cache_dtype": dtype}, {"cache": cache}:
                yield list(context.generate([[65, 66]], **options, **how)[0].logprobs)

        options = dict(max_new_tokens=8, temperature=0, stop_ids=[])
        with minimind.Context(self.model, max_length=32) as context:
            whole = list(context.generate([[65, 66]], **options)[0].logprobs)
            self.assertEqual(list(ways(minimind.MM_F32)), [whole] * 2)
            rounded, given = ways(minimind.MM_BF16)
            self.assertEqual(rounded, given)
            self.assertNotEqual(rounded, whole)
        text = "".join(self.model.generate([65, 66], cache_dtype=minimind.MM_BF16, **options))
        self.assertEqual(text, "".join(self.model.generate([65, 66], cache=minimind.Cache(self.model, 1, 32, minimind.MM_BF16), **options)))
        with self.assertRaisesRegex(minimind.ArgumentError, "cache_dtype"):   # whose head_dim is no multiple of 32
            list(self.model.generate("a", cache_dtype=minimind.MM_Q8_0))

    def test_a_stop_id_ends_a_sequence(self):
        with minimind.Context(self.model, max_length=32) as context:
            free = context.generate([[65]], max_new_tokens=8, temperature=0, stop_ids=[])[0]
            stop = int(free.ids[3])
            first = list(free.ids).index(stop)
            made = context.generate([[65]], max_new_tokens=8, temperature=0, stop_ids=[stop])[0]
            np.testing.assert_array_equal(made.ids, free.ids[:first])
            self.assertEqual(made.finish, minimind.MM_FINISH_STOP)

    def test_a_callback_ends_a_sequence_or_raises(self):
        seen = []
        with minimind.Context(self.model, max_length=32) as context:
            made = context.generate([[65]], max_new_tokens=8, stop_ids=[],
                                    on_token=lambda sequence, token, logprob: seen.append(token) or len(seen) == 3)
            self.assertEqual((list(made[0].ids), made[0].finish), (seen, minimind.MM_FINISH_CALLBACK))
            with self.assertRaises(ZeroDivisionError):
                context.generate([[65]], stop_ids=[], on_token=lambda *_: 1 / 0)

    def test_on_logits_says_what_may_come(self):
        def spell(sequence, ids, logits):
            kept.append((ids, logits))
            wanted = text[sequence][:ids.size + 1]
            self.assertEqual(list(ids), list(wanted[:ids.size]))
            rest = np.full_like(logits, -np.inf)
            rest[wanted[-1]] = 0
            logits[:] = rest
            return ids.size == len(text[sequence])

        text, kept = [[72, 101, 121], [33, 34, 35, 36]], []
        with minimind.Context(self.model, max_batch=2, max_length=32) as context:
            made = context.generate([[65], [65]], stop_ids=[], on_logits=spell)
            self.assertEqual([list(one.ids) for one in made], text)
            self.assertEqual([one.finish for one in made], [minimind.MM_FINISH_CALLBACK] * 2)
            self.assertEqual({tuple(one.logprobs) for one in made}, {(0.0,) * 3, (0.0,) * 4})
            for wrong, kind in ((lambda *_: 1 / 0, ZeroDivisionError), (lambda s, ids, logits: logits.fill(-np.inf), minimind.NumericError),
                                (7, TypeError)):
                self.assertRaises(kind, context.generate, [[65]], on_logits=wrong)
            self.assertEqual([list(one.ids) for one in context.generate([[65], [65]], stop_ids=[], on_logits=spell)], text)
        self.assertEqual({(ids.flags.owndata, logits.flags.owndata) for ids, logits in kept}, {(True, True)})

    def test_a_stream_that_on_logits_ends_leaves_all_in_the_cache(self):
        def end(sequence, ids, logits):
            return ids.size == wanted

        free = minimind.Context(self.model, max_length=64).generate([[65, 66]], max_new_tokens=8, temperature=0, stop_ids=[])[0]
        for wanted in (0, 1, 4):
            cache = minimind.Cache(self.model, 1, 64)
            told = "".join(self.model.generate([65, 66], cache=cache, temperature=0, stop_ids=[], on_logits=end))
            self.assertEqual(told, self.model.tokenizer.decode(free.ids[:wanted]))
            self.assertEqual(cache.length(), 2 + wanted)
        self.assertRaises(ZeroDivisionError, list, self.model.generate([65], on_logits=lambda *_: 1 / 0))

    def test_an_exception_leaves_a_cache_where_it_stood(self):
        def stumble(sequence, token, logprob):
            told.append(token)
            if len(told) == 5:
                raise LookupError(sequence)

        for close in (False, True):
            told, cache = [], minimind.Cache(self.model, 2, 32)
            with minimind.Context(self.model, max_batch=2, max_length=32) as context:
                context.generate([[65, 66], [67]], max_new_tokens=2, stop_ids=[], cache=cache)
                stood, watched = [cache.length(i) for i in (0, 1)], cache._native
                with self.assertRaises(LookupError):
                    context.generate([[65], [66]], stop_ids=[], cache=cache,
                                     on_token=lambda *one: close and cache.close() or stumble(*one))
                cache = minimind.Cache._wrap(watched)
                self.assertEqual(([cache.length(i) for i in (0, 1)], stood), ([3, 2], [3, 2]))

    def test_a_loop_that_is_left_ends_its_thread(self):
        before = threading.active_count()
        for piece in self.model.generate("a", max_new_tokens=100, stop_ids=[], temperature=2.0):
            break
        stream = self.model.generate("a", max_new_tokens=100, stop_ids=[])
        next(stream)
        stream.close()
        self.model.generate("never begun")
        del stream
        self.assertEqual(threading.active_count(), before)

    def test_bos_stands_before_the_prompt(self):
        for bos in False, True:
            with minimind.Cache(self.model, 1, 64) as cache:
                list(self.model.generate("ab", max_new_tokens=1, stop_ids=[], cache=cache, bos=bos))
                self.assertEqual(cache.length(0), 3 + bos)

    def test_a_turn_s_end_stands_in_for_an_eos_that_the_config_lacks(self):
        options = dict(max_new_tokens=60, temperature=1.0)
        streams = []
        for eos in 2, -1:
            with tiny_model(eos_token_id=eos) as model:
                streams.append(["".join(model.generate("a", tokenizer=self.model.tokenizer, seed=seed, **options)) for seed in range(16)])
        self.assertEqual(*streams)

    def test_a_closed_model_says_so(self):
        self.model.close()
        with self.assertRaisesRegex(minimind.StateError, "closed"):
            self.model.generate("a")

    def test_a_stream_outlives_the_model(self):
        stream = self.model.generate("a", max_new_tokens=20, stop_ids=[])
        self.model.close()
        self.assertTrue("".join(stream))

    def test_a_cache_goes_on(self):
        """... behind all that was drawn, the stop id too: as one prompt of all of it."""
        options, first, second = dict(max_new_tokens=6, temperature=0), np.arange(65, 75), np.arange(75, 80)
        with minimind.Context(self.model, max_length=64) as context:
            free = list(context.generate([first], stop_ids=[], **options)[0].ids)
            for stops in [], [free[3]]:
                drawn = free[:free.index(stops[0]) + 1] if stops else free
                whole = np.concatenate((first, drawn, second)).astype(np.int32)
                expected = context.generate([whole], stop_ids=[], **options)[0].ids
                with minimind.Cache(self.model, 1, 64) as cache:
                    "".join(self.model.generate(first, cache=cache, stop_ids=stops, **options))
                    self.assertEqual(cache.length(), first.size + len(drawn))
                    text = "".join(self.model.generate(second, cache=cache, stop_ids=[], **options))
                    self.assertEqual(text, self.model.tokenizer.decode(expected))
                    self.assertEqual(cache.length(), whole.size + 6)

    def test_a_cache_may_be_filled_to_its_end(self):
        options = dict(max_new_tokens=6, temperature=0, stop_ids=[])
        for capacity, held in (15, 15), (16, 16), (17, 16):
            with minimind.Cache(self.model, 1, capacity) as cache:
                self.assertEqual(cache.capacity, capacity)
                "".join(self.model.generate(np.arange(65, 75), cache=cache, **options))
                self.assertEqual(cache.length(), held)

    def test_a_stream_that_is_closed_leaves_its_cache_whole(self):
        with minimind.Cache(self.model, 1, 128) as cache:
            stream = self.model.generate([65, 66], cache=cache, max_new_tokens=110, temperature=0, stop_ids=[])
            next(stream)
            stream.close()
            held = cache.length()
            with minimind.Context(self.model, max_length=128) as context:
                drawn = list(context.generate([[65, 66]], max_new_tokens=110, temperature=0, stop_ids=[])[0].ids)
                self.assertGreater(held, 2)
                expected = context.generate([[65, 66] + drawn[:held - 2] + [67]], max_new_tokens=5, temperature=0, stop_ids=[])
            text = "".join(self.model.generate([67], cache=cache, max_new_tokens=5, temperature=0, stop_ids=[]))
            self.assertEqual(text, self.model.tokenizer.decode(expected[0].ids))

    def test_nonsense_is_refused(self):
        for options in ({"temperature": -1.0}, {"top_p": 2.0}, {"max_new_tokens": -1}):
            self.assertRaises(minimind.ArgumentError, list, self.model.generate("a", **options))
        self.assertRaises(minimind.ArgumentError, list, self.model.generate([259]))
        self.assertRaises(minimind.ArgumentError, list, self.model.generate([]))
        self.assertRaises(TypeError, list, self.model.generate("a", no_such_option=1))
        for name in ("on_token", "prompts", "context"):
            self.assertRaisesRegex(TypeError, f"takes no {name}", self.model.generate, "a", **{name: print})
        self.model.tokenizer = None
        self.assertRaisesRegex(minimind.StateError, "tokenizer", self.model.generate, "a")
        with minimind.Context(self.model, max_length=32) as context:
            self.assertRaises(ValueError, context.generate, [])
