"""What may happen while C runs, or right behind it: exceptions, signals, other threads, handles that are closed."""
from __future__ import annotations

import copy
import ctypes
import gc
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest.mock
import warnings
from contextlib import contextmanager

import numpy as np

import minimind
from minimind import _ffi
from minimind._caught import Caught
from minimind._library import ALONE, Alone, Native, create, lib
from support import ROOT, Case, byte_tokenizer, held, no_such, tiny_config, tiny_model

ROWS = [{"text": f"the cat sat on mat number {i}"} for i in range(24)]


class Evil:
    """A number that closes a handle when it is asked for."""

    def __init__(self, handle):
        self.handle = handle

    def __float__(self):
        self.handle.close()
        return 1.0


class Running(Case):
    """A case with something to run."""

    def setUp(self):
        super().setUp()
        self.tokenizer = byte_tokenizer()

    def trainer(self, **options) -> minimind.Trainer:
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        return minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, **options)

    def alarms(self):
        """From now on SIGALRM's handler, which is returned, raises TimeoutError. No garbage of other tests is freed
        meanwhile: Python ignores what is raised there, and says so."""
        def late(number, frame):
            raise TimeoutError("late")

        gc.collect()
        gc.disable()
        before = signal.signal(signal.SIGALRM, late)
        self.addCleanup(gc.enable)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        return late


class Exceptions(Running):
    def test_that_of_a_callback_is_raised_where_the_call_fails_too(self):
        def fail(progress):
            shutil.rmtree(self.directory / "out")
            (self.directory / "out").write_text("in the way of a checkpoint")
            raise ZeroDivisionError("own")

        with self.trainer(epochs=1, output=self.directory / "out", on_step=fail) as trainer:
            with self.assertRaisesRegex(ZeroDivisionError, "own") as caught:
                trainer.run()
        self.assertIsInstance(caught.exception.__cause__, minimind.MinimindError)
        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            def cancel(*told):
                context.cancel()
                raise ZeroDivisionError("own")

            self.assertRaisesRegex(ZeroDivisionError, "own", context.generate, [[1, 2]], on_token=cancel)

    def test_one_of_a_callback_holds_nothing_once_it_is_gone(self):
        before, seen = held(), []
        gc.disable()   # the last reference is enough
        self.addCleanup(gc.enable)
        for _ in range(3):
            with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
                try:
                    context.generate([[1, 2]], max_new_tokens=4, stop_ids=[], on_token=lambda *told: 1 / 0)
                except ZeroDivisionError as error:
                    seen.append(str(error))
        del context
        self.assertEqual(minimind.memory_usage()["current"], before)
        self.assertEqual(len(seen), 3)

    def test_a_stream_that_is_left_holds_nothing(self):
        before = held()
        model = tiny_model()
        model.tokenizer = self.tokenizer
        for _ in range(4):
            for _ in model.generate("a", max_new_tokens=100, stop_ids=[], threads=1):
                break
        model.close()
        del model
        self.assertEqual(held(), before)

    def test_an_error_that_is_kept_keeps_no_handle(self):
        before = held()
        context = minimind.Context(tiny_model(), max_length=8, threads=1)
        errors = []
        context.cancel()
        try:
            context.generate([[1, 2]], max_new_tokens=2, on_token=lambda *told: errors)   # which holds what is to come
        except minimind.CancelledError as error:
            errors.append(error.with_traceback(None))
        context.close()
        del context
        self.assertEqual(held(), before)

    def test_one_between_a_new_handle_and_its_owner_loses_nothing(self):
        def interrupted(*arguments):
            lib.mm_config_create(*arguments)
            raise KeyboardInterrupt

        before = held()
        self.assertRaises(KeyboardInterrupt, create, _ffi.mm_config, interrupted, lib.mm_config_free, b"minimind2-small")
        self.assertEqual(held(), before)

    def test_one_while_the_table_of_keys_is_read_leaves_no_half_of_it(self):
        """Nor does another thread see half of it, to which all other keys were unknown."""
        def interrupted(i, row):
            if i == 3:
                raise KeyboardInterrupt
            self.assertRaises(KeyError, minimind.config._keys.__getitem__, "model_type")
            return get(i, row)

        get = lib.mm_config_key_get
        with unittest.mock.patch.dict(minimind.config._keys, clear=True):
            with unittest.mock.patch.object(lib, "mm_config_key_get", interrupted), self.assertRaises(KeyboardInterrupt):
                minimind.config_keys()
            self.assertEqual(len(minimind.config_keys()), lib.mm_config_key_count())


class Signals(Running):
    """They come from another thread while C runs, and their handlers run where a callback begins."""

    @contextmanager
    def interrupted(self, number=signal.SIGINT, expected=KeyboardInterrupt):
        stop = threading.Event()

        def send():
            while not stop.wait(0.1):   # until one gets through
                os.kill(os.getpid(), number)

        thread, before = threading.Thread(target=send), signal.getsignal(number)
        thread.start()
        try:
            with self.assertRaises(expected):
                try:
                    yield
                finally:
                    stop.set()
                    thread.join()
        finally:
            stop.set()
            thread.join()
        self.assertIs(signal.getsignal(number), before)

    def test_training_ends_with_what_the_handler_raises(self):
        with self.trainer(epochs=100000) as trainer, self.interrupted():
            trainer.run()

    def test_rewards_end_with_it_too(self):
        rows = self.put_rows("prompts.jsonl", [{"question": "1+1=", "answer": "#### 2"}] * 8)
        loader = minimind.Loader(minimind.Dataset(rows), self.tokenizer, kind=minimind.MM_ROW_PROMPT, batch=2, max_length=24,
                                 template_name="minillm")
        policy = minimind.Policy(lambda answer: float(len(answer.text)), group=2, max_new_tokens=4)
        with minimind.Trainer(tiny_model(), loader, self.tokenizer, policy=policy, epochs=100000, threads=1) as trainer:
            with self.interrupted():
                trainer.run()

    def test_generating_ends_with_it_without_a_callback_too(self):
        with minimind.Context(tiny_model(max_position_embeddings=100000), max_length=8, max_context=100000,
                              threads=1) as context:
            with self.interrupted():
                context.generate([[1, 2]], max_new_tokens=99990, stop_ids=[])

    def test_learning_a_vocabulary_ends_with_it(self):
        def texts():
            while True:
                yield "a b c"

        with self.interrupted():
            minimind.Tokenizer.train(texts())

    def test_a_handler_of_the_programs_own_is_heard(self):
        def late(number, frame):
            raise TimeoutError("late")

        before = signal.signal(signal.SIGUSR1, late)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        with self.trainer(epochs=100000) as trainer, self.interrupted(signal.SIGUSR1, TimeoutError):
            trainer.run()

    def test_one_while_a_remark_is_told_is_raised_by_the_call(self):
        self.alarms()
        self.addCleanup(minimind.set_log, None)
        minimind.set_log(lambda level, message: os.kill(os.getpid(), signal.SIGALRM))
        bad = self.put("bad.jsonl", "no JSON\n" + '{"text": "a", "question": "a", "answer": "b"}\n' * 2)
        kinds = {"batch": 4, "max_length": 16, "skip_bad_lines": True}
        loader = minimind.Loader(minimind.Dataset(bad), self.tokenizer, **kinds)
        asked = minimind.Loader(minimind.Dataset(bad), self.tokenizer, kind=minimind.MM_ROW_PROMPT,
                                template_name="minillm", **kinds)
        with minimind.Context(tiny_model(), max_batch=4, max_length=16, outputs=minimind.MM_OUT_LOSS) as context:
            for call in (loader.next_batch, asked.next_prompts, lambda: minimind.evaluate.loss(context, loader)):
                self.assertRaises(TimeoutError, call)

    def test_calls_within_calls_give_way_too_and_handlers_are_theirs_again(self):
        inner = minimind.Context(tiny_model(), max_length=64, threads=1)
        before = signal.getsignal(signal.SIGINT)
        with self.trainer(epochs=100000, on_step=lambda told: inner.generate([[1]], max_new_tokens=30) and None) as trainer:
            with self.interrupted():
                trainer.run()
        inner.close()
        self.assertIs(signal.getsignal(signal.SIGINT), before)
        with self.assertRaises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


    def test_one_at_any_moment_leaves_all_as_it_was(self):
        """From a timer, at moments of which each falls on another instruction of Python or none."""
        late, heard = self.alarms(), 0
        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            for call in (lambda: context.generate([[1]], max_new_tokens=1, stop_ids=[], on_token=lambda *told: None),
                         lambda: context.forward([[1, 2]])):
                for i in range(400):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + i))
                        call()
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except TimeoutError:
                        heard += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
                call()   # nobody is left in the context
        self.assertGreater(heard, 10)
        self.assertIs(signal.getsignal(signal.SIGALRM), late)
        self.assertEqual(Caught._inside, [])
        with self.trainer(epochs=100000) as trainer, self.interrupted():
            trainer.run()

    def test_one_while_a_stream_is_let_go_comes_right_behind_it(self):
        """Python ignores what is raised while a generator is finalized, and says so to sys.unraisablehook."""
        model, ignored, handled, cancel = tiny_model(), [], [], minimind.Context.cancel
        model.tokenizer = self.tokenizer
        self.alarms()
        before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

        def let_go(streams):
            streams.clear()
            time.sleep(0)

        def leave(streams):
            for _ in streams.pop():
                break
            time.sleep(0)

        for number, expected in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, TimeoutError)):
            def interrupted(context):
                for one in (number, signal.SIGUSR1, number):
                    signal.raise_signal(one)
                cancel(context)

            for end in (let_go, leave, lambda streams: streams[0].close()):
                threads = threading.active_count()
                streams = [model.generate("a", max_new_tokens=100, stop_ids=[], threads=1)]
                next(streams[0])
                with unittest.mock.patch.object(sys, "unraisablehook", ignored.append), \
                        unittest.mock.patch.object(threading.Thread, "is_alive", lambda thread: True), \
                        unittest.mock.patch.object(minimind.Context, "cancel", interrupted), \
                        self.subTest(number=number), self.assertRaises(expected):
                    end(streams)
                self.assertEqual((threading.active_count(), Caught._inside), (threads, []))
        self.assertEqual((ignored, len(handled)), ([], 6))

    def test_an_interrupt_comes_before_other_errors(self):
        caught = Caught()
        with self.assertRaises(KeyboardInterrupt), caught:
            caught.errors.append(ZeroDivisionError("own"))
            signal.raise_signal(signal.SIGINT)
        self.assertEqual((Caught._inside, caught.errors), ([], []))

    def test_one_within_a_callback_is_the_callbacks(self):
        timed_out = []
        self.alarms()

        def slow(*told):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            try:
                time.sleep(20)
            except TimeoutError:
                timed_out.append(told)

        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            made = context.generate([[1, 2]], max_new_tokens=3, stop_ids=[], on_token=slow)
            self.assertEqual((len(timed_out), made[0].ids.size), (3, 3))
            with self.assertRaises(KeyboardInterrupt), self.subTest("one that it doesn't catch"):
                context.generate([[1, 2]], max_new_tokens=3, stop_ids=[],
                                 on_token=lambda *told: (os.kill(os.getpid(), signal.SIGINT), time.sleep(20)))


class OneAtATime(Running):
    def test_threads_that_ask_how_far_a_run_is_do_not_read_what_another_was_lent(self):
        reading, together, copy = [], [], minimind.train._progress

        def slow(told):
            reading.append(told)
            together.append(len(reading))
            time.sleep(0.02)
            try:
                return copy(told)
            finally:
                reading.pop()

        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        with minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, epochs=1) as trainer, \
                unittest.mock.patch.object(minimind.train, "_progress", slow):
            threads = [threading.Thread(target=trainer.progress) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(together, [1] * 4)

    def test_a_run_refuses_to_be_run_within_itself_or_beside_itself(self):
        refused, beside = [], []

        def run():
            self.assertRaises(minimind.StateError, trainer.run)
            beside.append(True)

        def meddle(progress):
            for wrong in (trainer.run, lambda: trainer.resume(self.directory), loader.next_batch):
                try:
                    wrong()
                except minimind.StateError as error:
                    refused.append(str(error))
            loader.tell()
            trainer.progress()
            if progress.step == 1:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()

        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        with minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, epochs=1, on_step=meddle, log_interval=1) as trainer:
            self.assertEqual(trainer.run().step, 6)
        self.assertEqual((len(refused), beside), (18, [True]))
        self.assertIsNone(loader.next_batch())   # the epoch is over, and the loader is anybody's again

    def test_a_context_refuses_a_call_within_its_own(self):
        with minimind.Context(tiny_model(), max_batch=2, max_length=64, threads=1) as context:
            def again(*told):
                context.generate([[1, 2, 3]], max_new_tokens=20, stop_ids=[])

            with self.assertRaisesRegex(minimind.StateError, "the context is in use"):
                context.generate([[1, 2], [3]], max_new_tokens=5, stop_ids=[], on_token=again)
            self.assertEqual(len(context.generate([[1, 2], [3]], max_new_tokens=5, stop_ids=[])), 2)   # and goes on

    def test_gradients_of_a_context_in_use_are_not_all_frozen(self):
        def ask(*told):
            self.assertRaisesRegex(minimind.StateError, "in use", lambda: context.gradients)

        with minimind.Context(tiny_model(), train=True, trainable="*norm*", max_length=8, threads=1,
                              outputs=minimind.MM_OUT_LAST_LOGITS) as context:
            context.generate([[1]], max_new_tokens=2, stop_ids=[], on_token=ask)
            self.assertEqual(len(context.gradients), 5)

    def test_a_context_and_its_cache_refuse_another_thread(self):
        model, began, refused = tiny_model(), threading.Event(), []
        with minimind.Context(model, max_length=64, threads=1) as one, minimind.Context(model, max_length=64) as other, \
                minimind.Cache(model, 1, 64) as cache:
            def meanwhile(*told):
                if not began.is_set():
                    began.set()
                    thread.join()

            def try_both():
                began.wait()
                for context, options in ((one, {}), (other, {"cache": cache})):
                    for call in (lambda: context.forward([[1]], **options), lambda: context.generate([[1]], **options)):
                        try:
                            call()
                        except minimind.StateError as error:
                            refused.append(str(error)[:24])
                try:
                    cache.truncate(0)
                except minimind.StateError as error:
                    refused.append(str(error)[:24])

            thread = threading.Thread(target=try_both)
            thread.start()
            one.generate([[1, 2]], cache=cache, max_new_tokens=4, stop_ids=[], on_token=meanwhile)
            thread.join()
        self.assertEqual(refused, ["the context is in use: i"] * 2 + ["the cache is in use: it "] * 3)

    def test_threads_on_one_loader_get_whole_batches_or_are_refused(self):
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        wrong, refused = [], []

        def read():
            for _ in range(200):
                try:
                    batch = loader.next_batch()
                    if batch is not None and batch.ids.shape[0] != 4:
                        wrong.append(batch)
                except minimind.StateError as error:
                    refused.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(len(loader.next_batch() or "four"), 4)


    def test_every_kind_of_handle_takes_one_call_at_a_time_or_many(self):
        many = {"mm_config", "mm_model", "mm_adapter", "mm_tokenizer", "mm_chat_reply", "mm_dataset"}   # of readers
        handles = {kind.__name__ for kind in ctypes.Structure.__subclasses__()
                   if kind.__module__ == _ffi.__name__ and not hasattr(kind, "_fields_")}
        self.assertEqual(handles, many | {kind.__name__ for kind in ALONE})

    def test_what_takes_one_call_at_a_time_refuses_another_thread(self):
        """Two threads that added to one chat broke the heap."""
        model, file = tiny_model(), self.directory / "file"
        chat, decoder, report = minimind.Chat(), self.tokenizer.decoder(), minimind.Report(self.directory / "report")
        optimizer, head = minimind.Optimizer(model), minimind.ValueHead(model)
        context = minimind.Context(model, train=True, max_length=8, threads=1)
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        hidden = np.zeros((1, 1, 32), np.float32)
        calls = {
            chat: [lambda: chat.add("user", "a"), lambda: chat.add_message({"role": "user", "content": "a"}),
                   lambda: chat.set_tools([]), lambda: chat.remove(0), chat.truncate, lambda: len(chat), lambda: chat.messages,
                   lambda: chat.format(self.tokenizer), lambda: chat.encode(self.tokenizer)],
            decoder: [lambda: decoder.push(70), decoder.flush],
            report: [lambda: report.add(1, loss=1.0), lambda: report.add(1, all=[1.0]), lambda: report.add(1, told="a"),
                     lambda: report.fact("a", 1), report.flush,
                     lambda: report.samples(1, context, self.tokenizer, ["a"], max_new_tokens=1)],
            optimizer: [lambda: optimizer.step(context, 1e-3), lambda: optimizer.steps, lambda: optimizer.save(file),
                        lambda: optimizer.load(file)],
            head: [lambda: head.forward(hidden), lambda: head.backward(hidden, [[0.0]]), lambda: head.step(1e-3),
                   head.zero_grad, lambda: head.weights, lambda: head.save(file), lambda: head.load(file)],
            loader: [loader.next_batch, loader.tell, loader.stats, lambda: loader.seek({"row": 0}),
                     lambda: loader.check_row(0)],
        }
        for handle, wrong in calls.items():
            refused = []

            def meanwhile():
                for call in wrong:
                    try:
                        call()
                    except minimind.StateError as error:
                        refused.append(str(error))

            with self.subTest(type(handle).__name__), Alone(handle):
                thread = threading.Thread(target=meanwhile)
                thread.start()
                thread.join()
                self.assertEqual([" is in use: " in one for one in refused], [True] * len(wrong))

    def test_threads_that_read_what_one_decoder_lends_are_refused(self):
        decoder, waiting, refused, read = self.tokenizer.decoder(), threading.Event(), [], minimind.tokenizer.bytes_at

        def slow(*lent):
            waiting.set()
            thread.join()
            return read(*lent)

        def push():
            waiting.wait()
            self.assertRaises(minimind.StateError, decoder.push, int(self.tokenizer.encode("b")[0]))
            refused.append(True)

        thread = threading.Thread(target=push)
        thread.start()
        with unittest.mock.patch.object(minimind.tokenizer, "bytes_at", slow):
            self.assertEqual(decoder.push(int(self.tokenizer.encode("a")[0])), "a")
        self.assertEqual(refused, [True])

    def test_a_chat_is_written_as_it_was_when_its_length_was_asked_for(self):
        chat, refused, given = minimind.Chat(), [], lib.mm_chat_write_json
        chat.add("user", "a")

        def add():
            self.assertRaises(minimind.StateError, chat.add, "user", "b")
            refused.append(True)

        def write(*arguments):
            given(*arguments)
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()

        with unittest.mock.patch.object(lib, "mm_chat_write_json", write):
            self.assertEqual(chat.messages, [{"role": "user", "content": "a"}])
        self.assertEqual(refused, [True] * 2)

    def test_a_report_is_an_evaluations_but_for_what_it_tells(self):
        report, refused, seen = minimind.Report(self.directory / "report"), [], []

        def add():
            try:
                report.add(2, other=1.0)
            except minimind.StateError as error:
                refused.append(str(error))

        def step(answer):
            report.add(1, {"row": answer.row, "all": [1.0, 2.0], "text": "a"})
            report.flush()
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()
            seen.append(answer.row)

        rows = self.put_rows("rows.jsonl", [{"prompt": "a", "expect": ["b"]}] * 2)
        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            minimind.evaluate.prompts(context, self.tokenizer, minimind.Dataset(rows), report=report, max_new_tokens=4,
                                      on_row=step)
        add()
        self.assertEqual((seen, len(refused)), ([0, 1], 2))
        self.assertIn('"other":', (self.directory / "report" / "metrics.jsonl").read_text())

    def test_a_loader_tells_its_place_within_a_run_and_not_beside_it(self):
        """What another thread was told was no place between two batches."""
        places, refused = [], []
        validation = minimind.Loader(minimind.Dataset(self.put_rows("more.jsonl", ROWS)), self.tokenizer, batch=4,
                                     max_length=32)
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)

        def ask():
            for wrong in (loader.tell, loader.stats, loader.next_batch, validation.tell, validation.next_batch):
                try:
                    wrong()
                except minimind.StateError as error:
                    refused.append(str(error))

        def step(progress):
            self.assertEqual(loader.stats()["batches"], progress.step)
            places.append(loader.tell()["row"])
            validation.tell()
            self.assertRaisesRegex(minimind.StateError, "the loader is in use", validation.next_batch)
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()

        with minimind.Trainer(tiny_model(), loader, self.tokenizer, validation=validation, threads=1, epochs=1, on_step=step,
                              log_interval=1) as trainer:
            trainer.run()
        self.assertEqual((places, len(refused)), ([4, 8, 12, 16, 20, 24], 30))
        ask()   # all is anybody's again
        self.assertEqual(len(refused), 30)

    def test_saving_is_for_the_runs_own_thread(self):
        """Two threads at one checkpoint broke the heap."""
        began, over, refused, saved = threading.Event(), threading.Event(), [], []

        def step(progress):
            began.set()
            if progress.step == 2:
                trainer.save()
                saved.append(progress.step)
            return over.is_set()

        def save():
            began.wait()
            for _ in range(50):
                try:
                    trainer.save()
                except minimind.StateError as error:
                    refused.append(error)
            over.set()

        with self.trainer(epochs=100000, output=self.directory / "out", on_step=step, background_save=True) as trainer:
            thread = threading.Thread(target=save)
            thread.start()
            trainer.run()
            thread.join()
            trainer.save()
        self.assertEqual((len(refused), saved), (50, [2]))

    def test_a_loader_is_not_moved_under_a_run(self):
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        other = minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, epochs=1, output=self.directory / "other")
        other.save()
        refused = []

        def meddle(progress):
            for wrong in (other.run, lambda: other.resume(self.directory / "other"), lambda: loader.seek({"row": 0})):
                try:
                    wrong()
                except minimind.StateError as error:
                    refused.append(error)

        with minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, epochs=1, on_step=meddle, log_interval=1) as trainer:
            self.assertEqual(trainer.run().step, 6)
        self.assertEqual(len(refused), 18)
        other.close()

    def test_runs_follow_each_other_on_one_loader(self):
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), self.tokenizer, batch=4, max_length=32)
        steps = []
        for epochs in (1, 2, 3):   # each begins at the beginning
            with minimind.Trainer(tiny_model(), loader, self.tokenizer, threads=1, epochs=epochs) as trainer:
                steps.append(trainer.run().step)
        self.assertEqual(steps, [6, 12, 18])

    def test_a_call_that_a_signal_ended_is_over_though_its_exception_is_kept(self):
        kept = []
        self.alarms()
        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            for i in range(1500):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + i % 300))
                    context.forward([[1, 2]])
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except TimeoutError as error:
                    kept.append(error)
            signal.setitimer(signal.ITIMER_REAL, 0)
            context.forward([[1, 2]])
        self.assertGreater(len(kept), 10)

    def test_a_child_of_another_thread_hears_signals_and_is_alone(self):
        children = []

        def fork():
            child = os.fork()
            if child == 0:
                try:
                    signal.raise_signal(signal.SIGINT)
                    os._exit(1)
                except KeyboardInterrupt:
                    with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
                        context.forward([[1, 2]])
                    os._exit(0)
            children.append(os.waitpid(child, 0)[1])

        def step(progress):
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
            return True

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)   # that there are threads
            with self.trainer(epochs=1, on_step=step) as trainer:
                trainer.run()
        self.assertEqual(children, [0])


    def test_a_stream_is_not_continued_in_a_child(self):
        """Its thread is not there, and the child had waited for ever."""
        model = tiny_model(max_position_embeddings=100000)
        model.tokenizer = self.tokenizer
        stream, fresh = (model.generate("a", max_new_tokens=99990, stop_ids=[], threads=1) for _ in range(2))
        self.addCleanup(stream.close)
        next(stream)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)   # that there are threads
            child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                next(stream)
            except minimind.StateError as error:
                if "forked child" in str(error) and next(stream, None) is None and next(fresh):
                    fresh.close()
                    os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(next(stream))


class Closing(Running):
    """Handles that are closed while a call stands on them."""

    def test_a_report_while_its_rows_are_told(self):
        report, seen = minimind.Report(self.directory / "report"), []

        def close(answer):
            seen.append(answer.row)
            report.close()

        rows = self.put_rows("rows.jsonl", [{"prompt": "a", "expect": ["b"]}] * 2)
        with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
            minimind.evaluate.prompts(context, self.tokenizer, minimind.Dataset(rows), report=report, max_new_tokens=4,
                                      on_row=close)
        self.assertEqual(seen, [0, 1])

    def test_an_adapter_a_reference_and_a_cache_while_the_call_is_made_ready(self):
        model = tiny_model()
        with minimind.Context(model, max_length=8, threads=1) as context:
            adapter = minimind.Adapter(model)
            context.set_adapters([adapter], [Evil(adapter)])
            self.assertTrue(adapter.closed)
            context.forward([[1, 2]])
        adapter = minimind.Adapter(model)
        minimind.merged(model, [adapter], [Evil(adapter)]).close()
        rows = [{"chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": word}],
                 "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "no"}]} for word in "xyz"]
        loader = minimind.Loader(minimind.Dataset(self.put_rows("pairs.jsonl", rows)), self.tokenizer, batch=1, max_length=64,
                                 kind=minimind.MM_ROW_PREFERENCE, template_name="minimind2")
        reference = tiny_model()
        with minimind.Trainer(model, loader, self.tokenizer, stage=minimind.MM_STAGE_DPO, reference=reference, epochs=1,
                              threads=1, dpo={"beta": Evil(reference)}) as trainer:
            self.assertEqual(trainer.run().step, 3)

    def test_a_context_lets_go_of_its_model(self):
        before = held()
        model = tiny_model()
        context = minimind.Context(model, max_length=8, adapter=minimind.Adapter(model), train=True)
        context.close()
        model.close()
        self.assertEqual(held(), before)
        with self.assertRaises(minimind.StateError):
            context.model

    def test_a_trainer_lets_go_of_its_loader(self):
        before = held()
        trainer = self.trainer(epochs=1)
        trainer.close()
        self.assertEqual(held(), before)

    def test_a_trainer_while_it_runs(self):
        trainer = self.trainer(epochs=1, on_step=lambda progress: trainer.close())
        self.assertEqual(trainer.run().step, 6)
        self.assertTrue(trainer.closed)

    def test_handles_in_another_thread_while_what_they_lend_is_read(self):
        model = tiny_model()
        adapter, dataset = minimind.Adapter(model), minimind.Dataset(self.put_rows("rows.jsonl", ROWS))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, interval)
        for handle, read in ((model, lambda: model.config.close()), (adapter, lambda: adapter.options),
                             (dataset, lambda: dataset.where(0))):
            thread = threading.Thread(target=handle.close)
            try:
                for i in range(50):
                    if i == 25:
                        thread.start()
                    read()
            except minimind.StateError:
                pass
            thread.join()


class Arguments(Running):
    def test_numbers_that_do_not_fit_are_refused(self):
        dataset = minimind.Dataset(self.put_rows("rows.jsonl", ROWS))
        model, decoder, chat = tiny_model(), self.tokenizer.decoder(), minimind.Chat()
        chat.add("user", "a")
        context = minimind.Context(model, max_length=64, threads=1)
        report = minimind.Report(self.directory / "report")
        for wrong in (lambda: dataset.text(2**64), lambda: minimind.Cache(model, 2**32 + 1, 8),
                      lambda: chat.remove(2**64), lambda: chat.remove(-1), lambda: decoder.push(2**32 + 68),
                      lambda: context.generate([[1]], max_new_tokens=2**32 + 2),
                      lambda: minimind.Loader(dataset, self.tokenizer, batch=2**32 + 1),
                      lambda: minimind.Dataset(self.directory / "rows.jsonl", max_rows=[2**64 + 1]),
                      lambda: minimind.Tokenizer.train(["a"], vocab_size=2**32 + 300), lambda: report.add(2**70, a=1.0),
                      lambda: minimind.Model(tiny_config(), -1)):
            self.assertRaisesRegex(ValueError, "is not in", wrong)
        self.assertEqual(len(chat), 1)
        self.assertEqual(dataset.text(np.int64(3)), ROWS[3]["text"])   # numpy's numbers are numbers
        self.assertRaises(TypeError, dataset.text, 1.5)

    def test_an_answer_may_hold_a_nul(self):
        model, answers = tiny_model(), []
        nul = int(self.tokenizer.encode("\0")[0])
        with model.writing("model.embed_tokens.weight") as weight:
            weight[:] = 1
            weight[nul] = 2
        rows = self.put_rows("rows.jsonl", [{"prompt": "a", "expect": ["b"]}])
        with minimind.Context(model, max_length=64, threads=1) as context:
            minimind.evaluate.prompts(context, self.tokenizer, minimind.Dataset(rows), max_new_tokens=20,
                                      on_row=lambda answer: answers.append(answer.answer))
        self.assertEqual(answers, ["\0" * 20])

    def test_prompts_may_be_an_array_and_paths_bytes(self):
        model, file = tiny_model(), self.put_rows("rows.jsonl", ROWS)
        with minimind.Context(model, max_batch=2, max_length=64, threads=1) as context:
            made = context.generate(np.array([[1, 2], [3, 4]]), max_new_tokens=2, stop_ids=[])
            self.assertEqual([one.ids.size for one in made], [2, 2])
            self.assertRaises(ValueError, context.generate, np.zeros((0, 2), int))
        self.assertEqual(len(minimind.Dataset(os.fsencode(file))), 24)
        model.tokenizer = self.tokenizer
        model.save_pretrained(self.directory)
        self.assertIsNotNone(minimind.Model.from_pretrained(os.fsencode(self.directory)).tokenizer)

    def test_a_value_of_no_kind_is_a_type_error(self):
        self.assertRaisesRegex(TypeError, "vocab_size: a number, a bool or a str is needed, not NoneType", minimind.Config,
                               vocab_size=None)

    def test_a_number_is_no_text_nor_an_address(self):
        """C read at the address that the number is."""
        model, chat, directory = tiny_model(), minimind.Chat(), self.directory / "report"
        chat.add("user", "a")
        dataset = minimind.Dataset(self.put_rows("rows.jsonl", ROWS))
        for option, make in {
                "title": lambda given: minimind.Report(directory, title=given),
                "targets": lambda given: minimind.Adapter(model, targets=given),
                "template_name": lambda given: chat.format(self.tokenizer, template_name=given),
                "begin": lambda given: chat.format(self.tokenizer, roles={"begin": given}),
                "trainable": lambda given: minimind.Optimizer(model, trainable=given),
                "kernels": lambda given: minimind.Context(model, kernels=given),
                "user": lambda given: self.trainer(user=given)}.items():
            for wrong in (7, 0, 1.5, True, np.int64(7), [b"a"], bytearray(b"a"), model):
                with self.subTest(option, wrong=wrong), self.assertRaisesRegex(TypeError, f"^{option}: a .* is needed, not "):
                    make(wrong)
        for wrong, refusal in ((b"a\0b", "NUL"), ("a\0b", "NUL"), ("\udc80", "surrogates")):
            self.assertRaisesRegex(ValueError, refusal, minimind.Report, directory, title=wrong)
            self.assertRaisesRegex(ValueError, refusal, minimind.Loader, dataset, self.tokenizer, template_name=wrong)
        minimind.Report(directory, title=b"bytes").close()
        self.assertEqual(minimind.Adapter(model, targets=b"q_proj").options["targets"], "q_proj")
        for wrong in (lambda: chat.add(7, "a"), lambda: self.tokenizer.find(7), lambda: minimind.Config(7),
                      lambda: minimind.Report(directory).fact(7, "a")):
            self.assertRaisesRegex(TypeError, "a text: a str is needed, not 7, of type int", wrong)
        self.assertRaisesRegex(TypeError, "special_tokens: a str is needed, not 7, of type int", minimind.Tokenizer.train,
                               ["a"], special_tokens=[7])

    def test_a_text_of_another_kind_is_named_and_bytes_are_text(self):
        with minimind.Context(tiny_model(), max_length=64, outputs=minimind.MM_OUT_LOGPROBS, threads=1) as context:
            for name, call in {
                    "content": lambda given: minimind.Chat().add("user", given),
                    "content ": self.tokenizer.encode,
                    "reply": minimind.Chat.parse,
                    "text": lambda given: minimind.evaluate.text(context, self.tokenizer, given)}.items():
                with self.subTest(name):
                    self.assertRaisesRegex(TypeError, f"^{name.strip()}: a str or bytes is needed, not 7, of type int", call, 7)
                    self.assertEqual(repr(call("abc é")), repr(call("abc é".encode("utf-8"))))

    def test_one_text_is_not_several(self):
        """It was taken for its characters."""
        train, report = minimind.Tokenizer.train, minimind.Report(self.directory / "report")
        for wrong in ("abc", b"abc", bytearray(b"abc"), memoryview(b"abc")):
            with self.subTest(wrong=wrong):
                self.assertRaisesRegex(TypeError, "^texts: a list of str is needed, not ", train, wrong)
                self.assertRaisesRegex(TypeError, "^special_tokens: a list of str ", train, ["abc"], special_tokens=wrong)
                with minimind.Context(tiny_model(), max_length=64, threads=1) as context:
                    self.assertRaisesRegex(TypeError, "^prompts: a list of str ", report.samples, 1, context, self.tokenizer,
                                           wrong)
        self.assertRaisesRegex(TypeError, "^texts: a str or bytes is needed, not 7, of type int", train, ["abc", 7])
        made = [train(texts, 262, special_tokens=names) for texts, names in (
            (["low lower lowest"] * 20, ("<s>", "</s>")), ((b"low lower lowest" for _ in range(20)), {"<s>": 1, "</s>": 2}))]
        self.assertEqual([one.encode("lowest").tolist() for one in made], [made[0].encode("lowest").tolist()] * 2)
        self.assertEqual([one.find("</s>") for one in made], [1, 1])

    def test_a_text_is_no_number_and_the_option_is_named(self):
        model, context = tiny_model(), minimind.Context(tiny_model(), max_length=64, threads=1)
        for needed, wrong in {
                "max_length: an int is needed, not '3', of type str": lambda: minimind.Context(model, max_length="3"),
                "max_length: an int is needed, not b'3', of type bytes": lambda: minimind.Context(model, max_length=b"3"),
                "threads: an int is needed, not 1.5, of type float": lambda: minimind.Context(model, threads=1.5),
                "rank: an int is needed, not Ellipsis, of type ellipsis": lambda: minimind.Adapter(model, rank=...),
                "temperature: a float is needed, not '1', of type str": lambda: context.generate([[1]], temperature="1"),
                "beta: a float is needed, not \\[1\\], of type list": lambda: minimind.Policy(len, beta=[1])}.items():
            self.assertRaisesRegex(TypeError, f"^{needed}$", wrong)

    def test_a_bool_of_numpys_is_a_bool(self):
        for value in (np.bool_(True), np.bool_(False)):
            with tiny_config(tie_word_embeddings=value) as config:
                self.assertIs(config["tie_word_embeddings"], bool(value))
        with minimind.Context(tiny_model(), max_length=8, train=np.bool_(True), checkpointing=np.bool_(True), threads=1,
                              router_noise=np.float32(0)) as context:
            context.forward([[1, 2]], [[2, 3]], train=np.bool_(True))
        self.assertEqual(self.tokenizer.decode([70], skip_special=np.bool_(True)),
                         self.tokenizer.decode([70], skip_special=True))

    def test_weights_in_memory_are_bytes(self):
        for wrong in ("x" * 100, 7, bytearray(100), None):
            self.assertRaisesRegex(TypeError, "data: bytes is needed, not ", minimind.Model.from_bytes, tiny_config(), wrong)

    def test_an_array_is_as_large_as_it_must_be_when_c_reads_it(self):
        """Its shape was held against a cache, or a pass to go back over, that another call then replaced."""
        class Late:
            def __init__(self, array, meanwhile):
                self.array, self.meanwhile = array, meanwhile

            def __array__(self, *_, **__):
                self.meanwhile()
                return self.array

        model = tiny_model()
        cache = minimind.Cache(model, 1, 64)
        with minimind.Context(model, train=True, max_length=32, max_batch=2, outputs=minimind.MM_OUT_LOGPROBS) as context, \
                minimind.Context(model, max_length=32) as other:
            mask = Late(np.ones((1, 2), int), lambda: other.forward([[1] * 30], cache=cache))
            with self.assertRaisesRegex(ValueError, "shape"):
                other.forward([[1, 2]], cache=cache, attention_mask=mask)
            long = np.ones((2, 32), int)
            context.forward([[1, 2]], [[1, 2]], train=True)
            with self.assertRaisesRegex(ValueError, "shape"):
                context.backward(d_logprobs=Late(np.zeros((1, 2)), lambda: context.forward(long, long, train=True)))
            context.backward(d_logprobs=np.zeros((2, 32)))

    def test_handles_are_no_values(self):
        model = tiny_model()
        for wrong in (copy.copy, copy.deepcopy, pickle.dumps):
            self.assertRaisesRegex(TypeError, "neither copied nor pickled", wrong, model)
            self.assertRaisesRegex(TypeError, "neither copied nor pickled", wrong, model._native)
        self.assertIsInstance(model._native, Native)

    def test_weights_in_blocks_say_what_to_do(self):
        quantized = tiny_model().quantize(minimind.MM_Q8_0)
        self.assertRaisesRegex(minimind.UnsupportedError, "cast", lambda: dict(quantized.weights))
        self.assertEqual(dict(quantized.cast(minimind.MM_F32).weights)["model.norm.weight"].shape, (32,))


class Finding(Case):
    def test_the_library_is_found_wherever_the_package_lies(self):
        shallow = pathlib.Path("/")   # as if it were there: /minimind/_library.py
        code = ("import minimind._library as one, pathlib, ctypes.util\n"
                f"one.__file__ = {str(shallow / 'minimind' / '_library.py')!r}\n"
                f"ctypes.util.find_library = lambda name: {minimind.load_library()!r}\n"
                "import minimind\nprint(minimind.version())\n")
        environment = {name: value for name, value in os.environ.items() if name != "MINIMIND_LIBRARY"}
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60,
                              env={**environment, "PYTHONPATH": str(ROOT / "examples" / "python")})
        self.assertEqual((done.returncode, done.stdout.strip()), (0, minimind.version()), done.stderr)

    def test_another_name_of_the_same_file_is_no_other_library(self):
        file = minimind.load_library()
        self.assertEqual(minimind.load_library(os.path.relpath(file)), file)
        self.assertRaisesRegex(minimind.LibraryNotFoundError, "in use already", minimind.load_library, no_such("lib.so"))

    def test_a_star_brings_no_modules(self):
        names: dict = {}
        exec("from minimind import *", names)
        for module in ("data", "model", "config", "train", "report", "annotations", "context"):
            self.assertNotIn(module, names)
        for name in ("Model", "Context", "generate", "evaluate", "objective", "MM_Q8_0", "__builtins__"):
            self.assertIn(name, names)
