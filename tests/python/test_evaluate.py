"""Evaluations from Python; their numbers are checked against the context's own logits."""
from __future__ import annotations

import math

import numpy as np

import minimind
from support import Case, byte_tokenizer, tiny_model


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Evaluate(Case):
    def setUp(self) -> None:
        super().setUp()
        self.tokenizer = byte_tokenizer()
        self.model = tiny_model()
        self.context = minimind.Context(self.model, max_batch=3, max_length=32, threads=1, outputs=(
            minimind.MM_OUT_LOSS | minimind.MM_OUT_LOGPROBS | minimind.MM_OUT_LOGITS | minimind.MM_OUT_LAST_LOGITS))

    def logprobs(self, ids: np.ndarray) -> np.ndarray:
        """Of each id after the first, given those before it."""
        output = self.context.forward(minimind.Batch(ids[None, :-1]), outputs=minimind.MM_OUT_LOGITS)
        return log_softmax(np.array(output.logits[0]))[np.arange(len(ids) - 1), ids[1:]]

    def test_a_text_has_the_loss_of_its_logits(self):
        ids = self.tokenizer.encode("The cat sat on the mat.")
        found = minimind.evaluate.text(self.context, self.tokenizer, "The cat sat on the mat.")
        expected = -self.logprobs(np.asarray(ids)).sum()
        self.assertAlmostEqual(found.loss_sum, expected, delta=1e-5 * expected)
        self.assertEqual((found.tokens, found.bytes), (22, 22))
        self.assertAlmostEqual(found.perplexity, math.exp(expected / 22), delta=0.05)

    def test_a_loader_is_evaluated_and_stands_where_it_stood(self):
        rows = self.put_rows("rows.jsonl", [{"text": f"row number {i}"} for i in range(7)])
        with minimind.Dataset(rows) as dataset, minimind.Loader(dataset, self.tokenizer, batch=3, max_length=20) as loader:
            found = minimind.evaluate.loss(self.context, loader)
            self.assertEqual((found.batches, minimind.evaluate.loss(self.context, loader, 1).batches), (3, 1))
            self.assertAlmostEqual(found.loss, math.log(259), delta=0.5)
            self.assertEqual(loader.tell()["row"], 0)

    def test_choices_are_told_row_by_row(self):
        rows = self.put_rows("rows.jsonl", [{"prompt": "The sky is", "choices": [" blue", " a"], "answer": 1}])
        told = []
        with minimind.Dataset(rows) as dataset:
            found = minimind.evaluate.choices(self.context, self.tokenizer, dataset, on_row=told.append)
            self.assertEqual((found.rows, found.correct), (1, 1))
            ids = np.asarray(self.tokenizer.encode("The sky is blue"))
            self.assertAlmostEqual(told[0].sums[0], self.logprobs(ids)[9:].sum(), delta=1e-3)
            self.assertAlmostEqual(told[0].per_byte[0], told[0].sums[0] / 5)
            self.assertEqual((told[0].picked, told[0].answer), (1, 1))
            with self.assertRaises(ZeroDivisionError):
                minimind.evaluate.choices(self.context, self.tokenizer, dataset, on_row=lambda choice: 1 / 0)
            self.assertRaises(minimind.CancelledError, minimind.evaluate.choices, self.context, self.tokenizer, dataset,
                              on_row=lambda choice: True)

    def test_prompts_pass_or_miss_a_string_and_tell_a_report(self):
        rows = self.put_rows("rows.jsonl", [{"prompt": "你好", "expect": ["never said"], "max_new_tokens": 3}])
        told = []
        with minimind.Dataset(rows) as dataset, minimind.Report(self.directory / "report") as report:
            found = minimind.evaluate.prompts(self.context, self.tokenizer, dataset, on_row=told.append, report=report,
                                              step=5)
        self.assertEqual((found.rows, found.passed), (1, 0))
        self.assertEqual((told[0].prompt, told[0].missing, told[0].passed), ("你好", "never said", False))
        self.assertIn("“你好”", (self.directory / "report" / "metrics.jsonl").read_text(encoding="utf-8"))

    def test_samples_come_into_a_report(self):
        with minimind.Report(self.directory / "report") as report:
            report.samples(3, self.context, self.tokenizer, ["one", "two"], max_new_tokens=4)
            report.samples(4, self.context, self.tokenizer, ["one"], max_new_tokens=4, sampling={"temperature": 1.0})
            self.assertRaises(minimind.ArgumentError, report.samples, 5, self.context, self.tokenizer, [])
        lines = (self.directory / "report" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(["“one”" in line for line in lines], [True, False, True])

    def test_a_bad_row_is_named(self):
        rows = self.put("rows.jsonl", '{"prompt": "p", "choices": ["a"], "answer": 3}\n')
        with minimind.Dataset(rows) as dataset:
            with self.assertRaisesRegex(minimind.FormatError, "rows.jsonl:1"):
                minimind.evaluate.choices(self.context, self.tokenizer, dataset)
