"""Data sets, loaders, the optimizer, the trainer, and the losses of later stages."""
from __future__ import annotations

import math
import threading

import numpy as np

import minimind
from support import Case, byte_tokenizer, no_such, tiny_model

ROWS = [{"text": f"the cat sat on mat number {i}"} for i in range(24)]


class Data(Case):
    def setUp(self):
        super().setUp()
        self.tokenizer = byte_tokenizer()
        self.file = self.put_rows("rows.jsonl", ROWS)

    def test_rows_are_read_by_number(self):
        with minimind.Dataset(self.file) as dataset:
            self.assertEqual((len(dataset), dataset.text(3)), (24, ROWS[3]["text"]))
            self.assertIn(b'"text"', dataset.line(0))
            self.assertEqual(dataset.where(5), (str(self.file), 6))
            self.assertRaises(minimind.ArgumentError, dataset.text, 24)

    def test_sides_and_limits_split_the_rows(self):
        sides = [len(minimind.Dataset(self.file, validation=0.3, side=side)) for side in
                 (minimind.MM_SIDE_TRAIN, minimind.MM_SIDE_VALIDATION)]
        self.assertEqual(sum(sides), 24)
        more = self.put_rows("more.jsonl", ROWS)
        self.assertEqual(len(minimind.Dataset([self.file, more], weights=[1, 0.5], max_rows=[0, 4])), 28)
        self.assertRaises(ValueError, minimind.Dataset, [self.file], weights=[1, 2])

    def test_an_epoch_has_every_row_once(self):
        with minimind.Dataset(self.file) as dataset, \
                minimind.Loader(dataset, self.tokenizer, batch=5, max_length=64, seed=3) as loader:
            dataset.close()
            for _ in range(2):
                batches = list(loader)
                self.assertEqual([len(batch) for batch in batches], [5, 5, 5, 5, 4])
                texts = {self.tokenizer.decode(row) for batch in batches for row in batch.ids}
                self.assertEqual(len(texts), 24)
            first = batches[0]
            self.assertEqual(first.ids.shape, (5, loader.length))
            counted = first.targets[:, :-1] >= 0
            np.testing.assert_array_equal(first.ids[:, 1:][counted], first.targets[:, :-1][counted])
            self.assertEqual(loader.stats()["batches"], 10)

    def test_a_loader_goes_back_to_where_it_stood(self):
        with minimind.Loader(minimind.Dataset(self.file), self.tokenizer, batch=4, max_length=64) as loader:
            loader.next_batch()
            position = loader.tell()
            expected = loader.next_batch()
            loader.seek(position)
            np.testing.assert_array_equal(loader.next_batch().ids, expected.ids)
            self.assertRaises(minimind.ArgumentError, loader.seek, {"row": -1})

    def test_packed_rows_have_documents(self):
        options = dict(form=minimind.MM_ROWS_PACK, max_length=64, batch=2)
        with minimind.Loader(minimind.Dataset(self.file), self.tokenizer, **options) as loader:
            batch = loader.next_batch()
            self.assertGreater(len(np.unique(batch.document_ids[0])), 1)

    def test_prompts_have_their_answers(self):
        file = self.put_rows("prompts.jsonl", [{"question": "1 + 1?", "answer": "think #### 2"}])
        options = dict(kind=minimind.MM_ROW_PROMPT, batch=1, max_length=400, template_name="minimind3")
        with minimind.Loader(minimind.Dataset(file), self.tokenizer, **options) as loader:
            prompts, _ = loader.next_prompts()
            self.assertEqual((prompts[0].answer, prompts[0].row), ("2", 0))
            self.assertIn("1 + 1?", self.tokenizer.decode(prompts[0].ids))
            self.assertGreater(loader.check_row(0)["tokens"], 5)
            self.assertRaises(minimind.StateError, loader.next_batch)

    def test_bad_rows_are_named(self):
        file = self.put("bad.jsonl", '{"text": "good"}\n{"text": 3}\n')
        with minimind.Loader(minimind.Dataset(file), self.tokenizer, shuffle=0, max_length=16) as loader:
            self.assertRaisesRegex(minimind.FormatError, "bad.jsonl:2", list, loader)
        self.assertRaises(minimind.FileError, minimind.Dataset, no_such("rows.jsonl"))
        self.assertRaises(minimind.MinimindError, minimind.Dataset, [])
        self.assertRaises(TypeError, minimind.Loader, minimind.Dataset(self.file), self.tokenizer, no_such_option=1)


class Training(Case):
    def make(self, **options):
        self.tokenizer, self.model = byte_tokenizer(), tiny_model()
        dataset = minimind.Dataset(self.put_rows("rows.jsonl", ROWS))
        loader = minimind.Loader(dataset, self.tokenizer, batch=4, max_length=32, seed=1)
        return minimind.Trainer(self.model, loader, self.tokenizer, **{
            "learning_rate": 5e-3, "epochs": 4, "accumulation_steps": 1, "threads": 1, **options})

    def test_the_loss_falls_by_hand(self):
        model, ids = tiny_model(), np.tile(np.arange(8) + 65, (2, 2))
        targets = np.roll(ids, -1, 1)
        with minimind.Context(model, train=True, max_batch=2, max_length=16, threads=1) as context, \
                minimind.Optimizer(model, weight_decay=0.0) as optimizer:
            losses = []
            for step in range(20):
                context.zero_grad()
                losses.append(context.forward(ids, targets, train=True, seed=step).loss)
                context.backward()
                self.assertGreater(optimizer.step(context, 5e-3, 1.0), 0)
            self.assertLess(losses[-1], losses[0] / 2)
            self.assertEqual(optimizer.steps, 20)
            optimizer.save(self.directory / "moments.safetensors")
            optimizer.load(self.directory / "moments.safetensors")
            self.assertRaises(minimind.FileError, optimizer.load, no_such("moments"))

    def test_a_student_learns_from_its_teacher_and_is_validated(self):
        dataset = minimind.Dataset(self.put_rows("others.jsonl", ROWS))
        validation = minimind.Loader(dataset, byte_tokenizer(), batch=4, max_length=32, shuffle=0)
        with self.make(stage=minimind.MM_STAGE_DISTILL, teacher=tiny_model(), distill={"alpha": 0.5}, validation=validation,
                       eval_interval=2) as trainer:
            progress = trainer.run()
            self.assertEqual(set(progress.metrics), {"cross_entropy", "kl"})
            self.assertEqual(set(progress.validation_metrics), {"cross_entropy", "kl"})
            self.assertGreater(progress.evaluations, 1)
        with self.assertRaisesRegex(minimind.MinimindError, "either a teacher"):
            self.make(stage=minimind.MM_STAGE_DISTILL)

    def test_a_student_learns_from_what_its_teacher_once_said(self):
        teacher, file, losses = tiny_model(7), self.directory / "teacher.safetensors", []
        loader = minimind.Loader(minimind.Dataset(self.put_rows("rows.jsonl", ROWS)), byte_tokenizer(), batch=4, max_length=32)
        loader.next_batch()
        stood = loader.tell()
        minimind.distill_cache_write(teacher, loader, file, k=259, threads=1)
        self.assertEqual(loader.tell(), stood)
        for way in {"teacher": teacher}, {"teacher_cache": file}:
            with self.make(stage=minimind.MM_STAGE_DISTILL, epochs=1, **way) as trainer:
                losses.append(trainer.run().loss)
        self.assertAlmostEqual(*losses, places=5)   # all that the teacher has to say is in float32
        self.assertRaises(minimind.FileError, minimind.distill_cache_write, teacher, loader, no_such("teacher"))
        self.assertRaises(minimind.ArgumentError, minimind.distill_cache_write, teacher, loader, file, k=260)
        self.assertRaises(TypeError, minimind.distill_cache_write, loader, loader, file)

    def test_the_loss_falls_by_the_trainer(self):
        losses = []
        with self.make(on_step=lambda progress: losses.append(progress.loss)) as trainer:
            end = trainer.run()
        self.assertEqual((end.step, end.total_steps, len(losses)), (24, 24, 24))
        self.assertLess(losses[-1], losses[0] * 0.7)

    def test_a_callback_stops_and_an_exception_comes_through(self):
        with self.make(on_step=lambda progress: progress.step == 3) as trainer:
            self.assertEqual(trainer.run().step, 3)
        with self.make(on_step=lambda progress: 1 / 0) as trainer:
            self.assertRaises(ZeroDivisionError, trainer.run)
            self.assertEqual(trainer.progress().step, 1)

    def test_another_thread_stops_a_run(self):
        with self.make(epochs=100000) as trainer:
            timer = threading.Timer(0.1, trainer.stop)
            timer.start()
            self.assertLess(trainer.run().step, 600000)
            timer.join()

    def test_a_run_resumes_to_the_same_bits(self):
        with self.make(output=self.directory / "whole") as trainer:
            trainer.run()
        whole = {name: array.copy() for name, array in self.model.weights.items()}
        with self.make(output=self.directory / "half", on_step=lambda progress: progress.step == 10) as trainer:
            trainer.run()
        with self.make() as trainer:
            trainer.resume(self.directory / "half")
            trainer.run()
        for name, array in self.model.weights.items():
            np.testing.assert_array_equal(array, whole[name], err_msg=name)
        latest = (self.directory / "whole" / "latest").read_text().strip()
        with minimind.Model.from_pretrained(self.directory / "whole" / latest) as model:
            self.assertIsInstance("".join(model.generate("the cat", max_new_tokens=5)), str)

    def test_nonsense_is_refused(self):
        self.assertRaises(minimind.ArgumentError, self.make, learning_rate=math.nan)
        self.assertRaises(TypeError, self.make, no_such_option=1)
        with self.make() as trainer:
            self.assertRaises(minimind.FileError, trainer.resume, no_such("run"))
            self.assertRaises(minimind.StateError, trainer.save)

    def test_schedules_are_their_formulas(self):
        self.assertAlmostEqual(minimind.schedule_lr(minimind.MM_SCHEDULE_MINIMIND2, 50, 100, 1e-3), 1e-4 + 5e-4)
        self.assertAlmostEqual(minimind.schedule_lr(minimind.MM_SCHEDULE_COSINE, 5, 100, 1e-3, warmup=10), 5e-4)
        self.assertRaises(minimind.ArgumentError, minimind.schedule_lr, 99, 0, 1, 1e-3)


class Policies(Case):
    def make(self, policy, **options):
        self.model, tokenizer = tiny_model(), byte_tokenizer()
        rows = [{"question": f"{i}+1=", "answer": f"#### {i + 1}"} for i in range(6)]
        loader = minimind.Loader(minimind.Dataset(self.put_rows("prompts.jsonl", rows)), tokenizer, batch=3, max_length=24,
                                 kind=minimind.MM_ROW_PROMPT, template_name="minillm")
        return minimind.Trainer(self.model, loader, policy=policy, **{
            "epochs": 2, "accumulation_steps": 1, "threads": 1, "learning_rate": 1e-3, **options})

    def test_answers_are_rewarded_by_a_function(self):
        seen = []
        for variant in (minimind.MM_POLICY_GRPO, minimind.MM_POLICY_CISPO, minimind.MM_POLICY_PPO):
            policy = minimind.Policy(lambda answer: seen.append(answer) or float((answer.ids % 2 == 0).mean()),
                                     variant=variant, group=4, max_new_tokens=5, reference=tiny_model(7))
            with self.make(policy) as trainer:
                end = trainer.run()
            self.assertEqual(end.step, 4)
            self.assertGreater(end.metrics["kl"], 0)
            self.assertEqual(len(seen), 2 * 6 * 4 * (variant + 1))
        self.assertIn(f"{seen[0].row}+1=", seen[0].prompt)
        self.assertEqual(seen[0].reference, str(seen[0].row + 1))
        self.assertEqual([answer.sample for answer in seen[:5]], [0, 1, 2, 3, 0])

    def test_an_exception_of_the_reward_comes_through(self):
        with self.make(minimind.Policy(lambda answer: 1 / 0, max_new_tokens=2)) as trainer:
            self.assertRaises(ZeroDivisionError, trainer.run)
            self.assertEqual(trainer.progress().step, 0)
        with self.make(minimind.Policy(lambda answer: math.nan, max_new_tokens=2)) as trainer:
            self.assertRaisesRegex(minimind.NumericError, "prompts.jsonl", trainer.run)
        self.assertRaises(minimind.ArgumentError, self.make, minimind.Policy(len, group=1))
        self.assertRaises(TypeError, minimind.Policy, len, no_such_option=1)


class Objectives(Case):
    def setUp(self):
        super().setUp()
        random = np.random.default_rng(0)
        self.logprobs = -random.random((4, 6)).astype(np.float32)
        self.mask = (random.random((4, 6)) < 0.7).astype(np.int32)

    def differences(self, loss, logprobs, gradient):
        for at in ((0, 1), (3, 4)):
            moved = [logprobs.copy(), logprobs.copy()]
            moved[0][at] += 1e-2
            moved[1][at] -= 1e-2
            self.assertAlmostEqual((loss(moved[0]) - loss(moved[1])) / 2e-2, float(gradient[at]), places=3)

    def test_scores_and_preferences(self):
        scores = minimind.objective.sequence_scores(self.logprobs, self.mask)
        np.testing.assert_allclose(scores, (self.logprobs * self.mask).sum(1), rtol=1e-6)
        result, gradient = minimind.objective.dpo(self.logprobs, scores, self.mask, beta=0.5)
        self.assertAlmostEqual(result["loss"], math.log(2), places=6)
        self.differences(lambda x: minimind.objective.dpo(x, scores, self.mask, beta=0.5)[0]["loss"], self.logprobs, gradient)
        self.assertRaises(ValueError, minimind.objective.dpo, self.logprobs[:3], scores, self.mask)

    def test_policies(self):
        advantages = minimind.objective.group_advantages([1, 0, 0, 1], 2)
        np.testing.assert_allclose(advantages, [1, -1, -1, 1], rtol=1e-3)
        for variant in (minimind.MM_POLICY_GRPO, minimind.MM_POLICY_CISPO):
            result, gradient = minimind.objective.policy_loss(self.logprobs, self.logprobs, self.mask, advantages,
                                                              self.logprobs, variant=variant)
            self.assertTrue(math.isfinite(result["loss"]))
            self.assertTrue((gradient[self.mask == 0] == 0).all())
        self.assertRaises(minimind.ArgumentError, minimind.objective.group_advantages, [1, 2, 3], 2)
        self.assertRaises(minimind.NumericError, minimind.objective.group_advantages, [1, math.inf], 2)

    def test_proximal_policies(self):
        values = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)
        rewards = np.zeros((4, 6))
        rewards[:, 5] = [1, 0, 1, 0]
        mask = np.ones((4, 6), np.int32)
        advantages, returns = minimind.objective.gae(rewards, values, mask, lambda_=1.0, normalize=0)
        np.testing.assert_allclose(returns, np.repeat([[1], [0], [1], [0]], 6, axis=1), atol=1e-6)
        np.testing.assert_allclose(advantages, returns - values, atol=1e-6)

        def loss(logprobs=self.logprobs, now=values):
            return minimind.objective.ppo_loss(logprobs, self.logprobs, now, values, mask, advantages, returns,
                                               self.logprobs, value_clip=0.0)

        result, d_logprobs, d_values = loss()
        self.assertAlmostEqual(result["value_loss"], ((values - returns) ** 2).mean() / 2, places=6)
        self.differences(lambda x: loss(logprobs=x)[0]["loss"], self.logprobs, d_logprobs)
        self.differences(lambda x: loss(now=x)[0]["loss"], values, d_values)
        self.assertEqual(minimind.objective.reward_repetition([1, 2, 1, 2], 2), 1 / 3)
        self.assertRaises(minimind.ArgumentError, minimind.objective.gae, rewards, values, mask, gamma=2.0)

    def test_a_value_head_learns_from_hidden_states(self):
        with tiny_model() as model, minimind.ValueHead(model, weight_decay=0.0) as head:
            hidden = np.random.default_rng(2).normal(size=(2, 5, model.config["hidden_size"])).astype(np.float32)
            wanted, misses = hidden[:, :, 0] + 1, []
            for _ in range(50):
                miss = head.forward(hidden) - wanted
                misses.append((miss ** 2).mean())
                head.zero_grad()
                d_hidden = head.backward(hidden, miss)
                head.step(0.02)
            self.assertEqual(d_hidden.shape, hidden.shape)
            self.assertLess(misses[-1], 0.5 * misses[0])
            head.save(self.directory / "head.safetensors")
            with minimind.ValueHead(model) as other:
                other.load(self.directory / "head.safetensors")
                np.testing.assert_array_equal(other.weights[0], head.weights[0])
                self.assertRaises(minimind.FileError, other.load, no_such("head"))
            self.assertRaises(ValueError, head.forward, hidden[0])

    def test_distillation(self):
        random = np.random.default_rng(1)
        student, teacher = random.normal(size=(4, 7)), random.normal(size=(4, 9))
        result, gradient = minimind.objective.distill(student, teacher, [1, -100, 2, 3], temperature=2.0)
        self.assertEqual(result["count"], 3)
        self.assertTrue((gradient[1] == 0).all())
        self.differences(lambda x: minimind.objective.distill(x, teacher, [1, -100, 2, 3], temperature=2.0)[0]["total"],
                         student.astype(np.float32), gradient)
        self.assertRaises(ValueError, minimind.objective.distill, student, teacher[:3], [1, 2, 3, 4])
