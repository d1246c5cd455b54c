"""Reports from Python; TensorBoard's files read back by protobuf, with their framing checked here."""
from __future__ import annotations

import json
import math
import struct
import unittest

import numpy as np

import minimind
from support import Case

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    descriptor_pb2 = None

# TensorFlow's messages, as far as event files of scalars and texts need them: name: [(field, number, type, repeated)]
MESSAGES = {
    "Event": [("wall_time", 1, "double", False), ("step", 2, "int64", False), ("file_version", 3, "string", False),
              ("summary", 5, "Summary", False), ("session_log", 7, "SessionLog", False)],
    "Summary": [("value", 1, "Value", True)],
    "Value": [("tag", 1, "string", False), ("simple_value", 2, "float", False), ("tensor", 8, "TensorProto", False),
              ("metadata", 9, "SummaryMetadata", False)],
    "SummaryMetadata": [("plugin_data", 1, "PluginData", False), ("data_class", 4, "int32", False)],
    "PluginData": [("plugin_name", 1, "string", False)],
    "TensorProto": [("dtype", 1, "int32", False), ("tensor_shape", 2, "TensorShapeProto", False),
                    ("string_val", 8, "bytes", True)],
    "TensorShapeProto": [("dim", 2, "Dim", True)],
    "Dim": [("size", 1, "int64", False)],
    "SessionLog": [("status", 1, "int32", False)],
}


def event_class():
    """The class of Event, made from MESSAGES by protobuf itself."""
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="t", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind, repeated in fields:
            field = message.field.add(name=field_name, number=number, label=3 if repeated else 1)
            if kind in MESSAGES:
                field.type, field.type_name = 11, f".t.{kind}"
            else:
                field.type = {"double": 1, "float": 2, "int64": 3, "int32": 5, "string": 9, "bytes": 12}[kind]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptor = pool.FindMessageTypeByName("t.Event")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)


def crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data: bytes):
    """The messages of an event file; a wrong checksum or a torn record is an AssertionError."""
    while data:
        assert len(data) >= 16 <= len(data) - struct.unpack_from("<Q", data)[0], "a torn record"
        length, length_crc = struct.unpack_from("<QI", data)
        assert length_crc == masked_crc32c(data[:8]), "the checksum of a length"
        message, (message_crc,) = data[12:12 + length], struct.unpack_from("<I", data, 12 + length)
        assert message_crc == masked_crc32c(message), "the checksum of a message"
        yield message
        data = data[16 + length:]


def fill(report: minimind.Report) -> None:
    for step in range(1, 6):
        report.add(step, loss=5 / step, grad_norm=math.nan if step == 3 else 1.0, expert_load=np.array([0.25, 0.75]))
    report.add(5, {"你是谁？": "我是 <b>MiniMind</b>\n\0" + "长" * 200})
    report.fact("parameters", 25)
    report.flush()


class Reports(Case):
    def open(self, **options) -> minimind.Report:
        return minimind.Report(self.directory / "report", **options)

    def lines(self) -> list[dict]:
        text = (self.directory / "report" / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def test_values_come_back_from_metrics_jsonl(self):
        with self.open(title="a run") as report:
            fill(report)
        lines = self.lines()
        self.assertEqual([line["loss"] for line in lines if "loss" in line], [5 / step for step in range(1, 6)])
        self.assertEqual([line["grad_norm"] for line in lines if "grad_norm" in line], [1, 1, None, 1, 1])
        self.assertEqual(lines[0]["expert_load"], [0.25, 0.75])
        self.assertEqual(lines[-1]["你是谁？"], "我是 <b>MiniMind</b>\n\0" + "长" * 200)
        page = (self.directory / "report" / "report.html").read_text(encoding="utf-8")
        self.assertIn("<title>a run</title>", page)
        self.assertIn("<dt>parameters</dt><dd>25</dd>", page)
        self.assertIn("&lt;b&gt;MiniMind&lt;/b&gt;", page)
        self.assertNotIn("http:", page.replace("http-equiv", ""))
        self.assertNotIn("https:", page)

    def test_a_report_goes_on_from_a_step(self):
        with self.open() as report:
            fill(report)
        with self.open(resume_step=3) as report:
            report.add(4, loss=0.5)
        self.assertEqual([line["loss"] for line in self.lines() if "loss" in line], [5, 2.5, 5 / 3, 0.5])

    def test_wrong_values_are_refused(self):
        with self.open() as report:
            self.assertRaises(minimind.ArgumentError, report.add, -1, loss=1)
            self.assertRaises(minimind.ArgumentError, report.add, 1, step=1)
            self.assertRaises(minimind.ArgumentError, report.add, 1, load=[[]])
            self.assertRaises((TypeError, ValueError), report.add, 1, loss=object())
            self.assertRaises(ValueError, report.add, 1, {"a\0b": 1})
        self.assertRaises(minimind.StateError, report.flush)


@unittest.skipUnless(descriptor_pb2, "python3-protobuf is missing")
class TensorBoard(Case):
    def events(self):
        Event = event_class()
        files = sorted((self.directory / "report").glob("events.out.tfevents.*"))
        return [[Event.FromString(message) for message in records(file.read_bytes())] for file in files]

    def test_scalars_and_texts_are_read_back(self):
        with minimind.Report(self.directory / "report") as report:
            fill(report)
        (events,) = self.events()
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertTrue(all(event.wall_time > 1e9 for event in events))
        values = [(event.step, value) for event in events for value in event.summary.value]
        self.assertEqual([(step, value.simple_value) for step, value in values if value.tag == "loss"],
                         [(step, float(np.float32(5 / step))) for step in range(1, 6)])
        norms = [value.simple_value for _, value in values if value.tag == "grad_norm"]
        self.assertEqual([math.isnan(norm) for norm in norms], [False, False, True, False, False])
        self.assertEqual({value.simple_value for _, value in values if value.tag == "expert_load/1"}, {0.75})
        (text,) = [(step, value) for step, value in values if value.HasField("tensor")]
        self.assertEqual((text[0], text[1].tag), (5, "你是谁？"))
        self.assertEqual(text[1].metadata.plugin_data.plugin_name, "text")
        self.assertEqual((text[1].tensor.dtype, text[1].metadata.data_class), (7, 2))   # DT_STRING, DATA_CLASS_TENSOR
        self.assertEqual([one.decode() for one in text[1].tensor.string_val], ["我是 <b>MiniMind</b>\n\0" + "长" * 200])

    def test_going_on_from_a_step_declares_what_lay_beyond_it_void(self):
        with minimind.Report(self.directory / "report") as report:
            fill(report)
        with minimind.Report(self.directory / "report", resume_step=3) as report:
            report.add(4, loss=0.5)
        first, second = self.events()
        self.assertFalse(any(event.HasField("session_log") for event in first))
        (start,) = [event for event in second if event.HasField("session_log")]
        self.assertEqual((start.step, start.session_log.status), (4, 1))    # START

    def test_a_torn_or_flipped_record_is_noticed_by_its_checksums(self):
        with minimind.Report(self.directory / "report") as report:
            fill(report)
        (file,) = (self.directory / "report").glob("events.out.tfevents.*")
        data = file.read_bytes()
        flipped = bytearray(data)
        flipped[40] ^= 1
        for wrong in (bytes(flipped), data[:-1], data[:-20], data[:3]):
            with self.assertRaises(AssertionError):
                list(records(wrong))
