"""Files of torch.save() without torch, to see convert read and write them. What torch pickles are names and tuples, which
classes of its names here stand for; the zip is Python's.

    torch_file.py make FORM SAFETENSORS FILE     what torch.save() would write of these weights, in one of FORMS
    torch_file.py same SAFETENSORS FILE          FILE holds these weights, by their names, and a tied head
    torch_file.py attack FILE COMMAND...         COMMAND with FILE cut short and its bytes changed ends with 0 or 1
"""
import collections
import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
import zlib

from attack import attack

# name in safetensors: torch's class, bytes, struct's letter
KINDS = {"F32": ("FloatStorage", 4, "f"), "F16": ("HalfStorage", 2, "e"), "BF16": ("BFloat16Storage", 2, "H"),
         "F64": ("DoubleStorage", 8, "d"), "I64": ("LongStorage", 8, "q")}

torch = types.ModuleType("torch")
utils = types.ModuleType("torch._utils")
for kind, _, _ in KINDS.values():
    setattr(torch, kind, type(kind, (), {"__module__": "torch"}))


def _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks):
    return Tensor(storage, offset, shape, strides)


def _rebuild_parameter(tensor, requires_grad, hooks):
    return tensor


for function in (_rebuild_tensor_v2, _rebuild_parameter):
    function.__module__, function.__qualname__ = "torch._utils", function.__name__
    setattr(utils, function.__name__, function)
sys.modules.update({"torch": torch, "torch._utils": utils})


class Storage:
    def __init__(self, dtype, key, data):
        self.dtype, self.key, self.data = dtype, key, data


class Tensor:
    def __init__(self, storage, offset, shape, strides):
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)

    def __reduce_ex__(self, protocol):
        return _rebuild_tensor_v2, (self.storage, self.offset, self.shape, self.strides, False, collections.OrderedDict())

    def numbers(self):
        """As bytes, in the order of the shape."""
        _, size, _ = KINDS[self.storage.dtype]
        if not self.shape:
            return self.storage.data[self.offset * size:(self.offset + 1) * size]
        rows = range(self.shape[0]) if len(self.shape) == 2 else [0]
        columns, step, row_step = self.shape[-1], self.strides[-1], self.strides[0] if len(self.shape) == 2 else 0
        at = lambda i: self.storage.data[i * size:(i + 1) * size]
        return b"".join(at(self.offset + r * row_step + c * step) for r in rows for c in range(columns))


class Parameter(Tensor):
    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (Tensor(self.storage, self.offset, self.shape, self.strides), True, collections.OrderedDict())


def read_safetensors(file):
    with open(file, "rb") as opened:
        data = opened.read()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


def contiguous(shape):
    return [shape[1], 1] if len(shape) == 2 else [1] * len(shape)


def changed(numbers, dtype, to):
    count = len(numbers) // KINDS[dtype][1]
    values = struct.unpack(f"<{count}{KINDS[dtype][2]}", numbers)
    return struct.pack(f"<{count}{KINDS[to][2]}", *[int(v) if to == "I64" else v for v in values])


def transposed(numbers, shape, size):
    rows, columns = shape
    at = lambda r, c: numbers[(r * columns + c) * size:(r * columns + c + 1) * size]
    return b"".join(at(r, c) for c in range(columns) for r in range(rows))


def lora_of(weights, file):
    """PEFT's names as MiniMind's, and the factor, which MiniMind has not, in B."""
    with open(os.path.join(os.path.dirname(file), "adapter_config.json"), encoding="utf-8") as opened:
        config = json.load(opened)
    factor, made = config["lora_alpha"] / config["r"], {}
    for key, (name, (dtype, shape, numbers)) in enumerate(weights.items()):
        values = struct.unpack(f"<{len(numbers) // 4}f", numbers)
        if "lora_B" in name:
            values = [v * factor for v in values]
        name = name.replace("base_model.model.", "", 1).replace("lora_", "lora.")
        made[name] = Tensor(Storage(dtype, str(key), struct.pack(f"<{len(values)}f", *values)), 0, shape, contiguous(shape))
    return made


def tensors_of(weights, form):
    made, cls = {}, Parameter if form == "parameters" else Tensor
    for key, (name, (dtype, shape, numbers)) in enumerate(weights.items()):
        to = {"half": "F16", "double": "F64", "whole": "I64"}.get(form, dtype)
        numbers = changed(numbers, dtype, to) if to != dtype else numbers
        size, strides, offset = KINDS[to][1], contiguous(shape), 0
        if form == "strided" and len(shape) == 2:
            numbers, strides = transposed(numbers, shape, size), [1, shape[0]]
        if form == "apart":   # a view into a larger storage
            numbers, offset = b"\1" * 3 * size + numbers + b"\2" * size, 3
        made[name] = cls(Storage(to, str(key), numbers), offset, shape, strides)
    made.setdefault("lm_head.weight", made["model.embed_tokens.weight"])
    first = made["model.norm.weight"]
    if form == "beyond":
        first.offset = 1
    elif form == "far":
        first.strides = [1 << 40]
    elif form == "negative":
        first.offset = -1
    elif form == "endless":   # as expand() makes them: many numbers of one
        made["model.norm.weight"] = Tensor(first.storage, 0, [1 << 31], [0])
    elif form == "hollow":   # rows without end, of nothing
        made.update({f"none{i}": Tensor(first.storage, 0, [1 << 31, 0], [1 << 62, 1]) for i in range(1000)})
    elif form == "crowded":
        made.update({f"copy{i}": Tensor(first.storage, 0, [1], [1]) for i in range(66000)})
    elif form == "long-name":
        made["x" * (1 << 20)] = first
    elif form == "shouted-name":
        made["a\x1b[2J\nb"] = 5
    elif form == "odd-name":
        made['a"b'] = first
    elif form == "often":
        made.update({f"copy{i}": made["model.embed_tokens.weight"] for i in range(50)})
    elif form == "no-tensor":
        made["model.norm.weight"] = 5
    return made


class Run:   # what unpickling would run
    def __reduce__(self):
        return exec, ("raise SystemExit('what was pickled has run')",)


FORMS = {"plain": 2, "half": 2, "ordered": 2, "nested": 2, "parameters": 2, "strided": 2, "apart": 2, "newer": 4,
         "double": 2, "whole": 2, "beyond": 2, "far": 2, "negative": 2, "endless": 2, "hollow": 2, "often": 2, "crowded": 2, "lora": 2,
         "long-name": 2, "shouted-name": 2, "odd-name": 2, "no-tensor": 2, "nothing": 2, "list": 2, "runs": 2,
         "big-endian": 2, "compressed": 2, "overlapping": 2, "no-numbers": 2, "no-pickle": 2, "old": 0}


def make(form, weights_file, file):
    weights = read_safetensors(weights_file)
    made = lora_of(weights, weights_file) if form == "lora" else tensors_of(weights, form)
    whole = {"ordered": collections.OrderedDict(made), "nothing": {}, "list": list(made.values()),
             "nested": {"epoch": 3, "lr": 0.5, "rest": None, "far": 1 << 40, "on": True, "model": made}}.get(form, made)
    if form == "runs":
        whole = dict(made, run=Run())
    stored = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if not isinstance(value, Storage):
                return None
            stored[value.key] = value.data
            kind, size, _ = KINDS[value.dtype]
            return "storage", getattr(torch, kind), value.key, "cpu", len(value.data) // size

    text = io.BytesIO()
    Pickler(text, FORMS[form]).dump(whole)
    packing = zipfile.ZIP_DEFLATED if form == "compressed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", packing) as out:
        if form != "no-pickle":
            out.writestr("archive/data.pkl", text.getvalue())
        if form in ("newer", "big-endian"):
            out.writestr("archive/byteorder", "big" if form == "big-endian" else "little")
        for key, data in stored.items():
            if form != "no-numbers":
                out.writestr(f"archive/data/{key}", data)
        out.writestr("archive/version", "3\n")
        if form == "overlapping":
            largest = max(out.filelist, key=lambda info: info.file_size)
            out.filelist += [largest] * 3


def same(weights_file, file):
    weights = read_safetensors(weights_file)
    with zipfile.ZipFile(file) as opened:
        assert opened.testzip() is None
        names = opened.namelist()
        assert all(opened.getinfo(name).compress_type == zipfile.ZIP_STORED for name in names)
        assert opened.read("archive/version") == b"3\n"

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, saved):
                word, kind, key, device, count = saved
                dtype, = [name for name, row in KINDS.items() if row[0] == kind.__name__]
                data = opened.read(f"archive/data/{key}")
                assert (word, device, len(data)) == ("storage", "cpu", count * KINDS[dtype][1]), saved
                return Storage(dtype, key, data)

            def find_class(self, module, name):
                allowed = {"torch", "torch._utils"} if name != "OrderedDict" else {"collections"}
                assert module in allowed, (module, name)
                return super().find_class(module, name)

        found = Unpickler(io.BytesIO(opened.read("archive/data.pkl"))).load()
        starts = [info.header_offset + 30 + len(info.filename) + int.from_bytes(
            opened.fp.read(2) if opened.fp.seek(info.header_offset + 28) or True else b"", "little") for info in opened.infolist()]
    assert all(start % 64 == 0 for start in starts), starts
    if "lm_head.weight" not in weights:
        head, embedding = found.pop("lm_head.weight"), found["model.embed_tokens.weight"]
        assert head.storage.key == embedding.storage.key and head.shape == embedding.shape
    assert list(found) == list(weights), (list(found), list(weights))
    for name, (dtype, shape, numbers) in weights.items():
        t = found[name]
        assert (t.storage.dtype, list(t.shape), t.offset, list(t.strides)) == (dtype, shape, 0, contiguous(shape)), name
        assert t.storage.data == numbers, name


def attack_file(file, *command):
    """Most of it in the pickle and in the list at the end, which lead to the rest."""
    with open(file, "rb") as opened:
        at = opened.read().index(b"archive/data.pkl")
    spots = lambda data: [(at, at + 8000), (len(data) - 2500, len(data)), (0, len(data))]
    attack(file, command, 7, 120, spots, fix_checksum)


def fix_checksum(data):
    """The pickle's, which then lets what was changed pass."""
    listed = data.rfind(b"archive/data.pkl")
    if listed < 46 or data[:4] != b"PK\3\4":
        return
    name, extra = struct.unpack_from("<HH", data, 26)
    size, = struct.unpack_from("<I", data, listed - 46 + 24)
    begin = 30 + name + extra
    struct.pack_into("<I", data, listed - 46 + 16, zlib.crc32(data[begin:begin + size]))


if __name__ == "__main__":
    {"make": make, "same": same, "attack": attack_file}[sys.argv[1]](*sys.argv[2:])
