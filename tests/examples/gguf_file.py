"""GGUF files other than those that convert writes, made of one, to see convert read or refuse them.

    gguf_file.py make FORM FILE OUT        FILE with what one of FORMS changes
    gguf_file.py attack FILE COMMAND...    COMMAND with FILE cut short and its bytes changed ends with 0 or 1
"""
import struct
import sys

from attack import attack

U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10
FORMATS = {U8: "B", I32: "i", U32: "I", F32: "f", BOOL: "?", U64: "Q"}
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144), 30: (1, 2)}   # numbers and bytes


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def text(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            return inner, [self.value(inner) for _ in range(count)]
        return self.text() if kind == STRING else self.take(FORMATS[kind])


class File:
    """keys: name to type and value; tensors: name to shape, the slowest axis first, type and bytes."""

    def __init__(self, path):
        with open(path, "rb") as file:
            r = Reader(file.read())
        r.at = 8
        tensors, keys = r.take("Q"), r.take("Q")
        self.version, self.align, self.keys, self.tensors, infos = 3, 32, {}, {}, []
        for _ in range(keys):
            name, kind = r.text(), r.take("I")
            self.keys[name] = kind, r.value(kind)
        for _ in range(tensors):
            name = r.text()
            infos.append((name, [r.take("Q") for _ in range(r.take("I"))][::-1], r.take("I"), r.take("Q")))
        begin = (r.at + 31) // 32 * 32
        for name, shape, kind, offset in infos:
            numbers, size = BLOCKS[kind]
            length = product(shape) // numbers * size
            self.tensors[name] = shape, kind, r.data[begin + offset:begin + offset + length]
        self.order, self.offsets, self.end = [], {}, b""

    def write(self, path):
        text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()

        def value(kind, v):
            if kind == ARRAY:
                return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
            return text(v) if kind == STRING else struct.pack("<" + FORMATS[kind], v)

        names = list(self.tensors) + self.order
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(names), len(self.keys))
        head += b"".join(text(name) + struct.pack("<I", kind) + value(kind, v) for name, (kind, v) in self.keys.items())
        data = b""
        for name in names:
            shape, kind, numbers = self.tensors[name]
            head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
            head += struct.pack("<IQ", kind, self.offsets.get(name, len(data)))
            if name not in self.offsets:
                data += numbers + bytes(-len(numbers) % self.align)
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % self.align) + data)


def product(shape):
    count = 1
    for length in shape:
        count *= length
    return count


def widened(kind, data):
    """Blocks as float32."""
    out = b""
    for at in range(0, len(data), BLOCKS[kind][1]):
        scale, = struct.unpack_from("<e", data, at)
        block = data[at + 2:at + BLOCKS[kind][1]]
        whole = struct.unpack("32b", block) if kind == 8 else [(b & 15) - 8 for b in block] + [(b >> 4) - 8 for b in block]
        out += struct.pack("<32f", *[scale * number for number in whole])
    return out


def set_key(name, kind, value):
    return lambda f: f.keys.update({name: (kind, value)})


def set_tensor(name, shape=None, kind=None, data=None):
    def change(f):
        old = f.tensors[name]
        f.tensors[name] = shape or old[0], old[1] if kind is None else kind, old[2] if data is None else data
    return change


def widen_one(f):
    shape, kind, data = f.tensors["blk.1.ffn_up.weight"]
    f.tensors["blk.1.ffn_up.weight"] = shape, 0, widened(kind, data)


def twice_tokens(f):
    kind, (inner, texts) = f.keys["tokenizer.ggml.tokens"]
    f.keys["tokenizer.ggml.tokens"] = kind, (inner, texts[:-1] + texts[:1])


def change_types(f, last):
    kind, (inner, types) = f.keys["tokenizer.ggml.token_type"]
    f.keys["tokenizer.ggml.token_type"] = kind, (inner, types[:-1] + last)


def yarn(f):
    f.keys.update({"llama.rope.scaling.type": (STRING, "yarn"), "llama.rope.scaling.factor": (F32, 4.0),
                   "llama.rope.scaling.original_context_length": (U32, 2048), "llama.rope.scaling.finetuned": (BOOL, True)})


def short_yarn(f):
    yarn(f)
    del f.keys["llama.rope.scaling.original_context_length"]


def sparse(f):
    """As other programs may write it: what is the same as what it follows is left out."""
    for name in ("vocab_size", "attention.key_length", "attention.value_length", "rope.dimension_count"):
        del f.keys["llama." + name]
    f.keys["general.tags"] = ARRAY, (STRING, ["a", "b"])
    f.keys["llama.block_count"] = U64, f.keys["llama.block_count"][1]


FORMS = {
    "older": lambda f: setattr(f, "version", 2),
    "first": lambda f: setattr(f, "version", 1),
    "big-endian": lambda f: setattr(f, "version", 3 << 24),
    "aligned": lambda f: (setattr(f, "align", 128), set_key("general.alignment", U32, 128)(f)),
    "misaligned": set_key("general.alignment", U32, 24),
    "sparse": sparse,
    "backwards": lambda f: setattr(f, "tensors", dict(reversed(f.tensors.items()))),
    "head": lambda f: f.tensors.update({"output.weight": f.tensors["token_embd.weight"]}),
    "mixed": widen_one,
    "unlike": lambda f: set_tensor("output_norm.weight", data=struct.pack("<f", 1.00001) + f.tensors["output_norm.weight"][2][4:])(f),
    "yarn": yarn,
    "short-yarn": short_yarn,
    "untold": lambda f: (yarn(f), f.keys.pop("llama.rope.scaling.type")),
    "linear": lambda f: (yarn(f), set_key("llama.rope.scaling.type", STRING, "linear")(f)),
    "gemma": set_key("general.architecture", STRING, "gemma"),
    "split": set_key("split.count", U32, 3),
    "window": set_key("llama.attention.sliding_window", U32, 1024),
    "experts": set_key("llama.expert_count", U32, 4),
    "heads": set_key("llama.attention.head_count", ARRAY, (U32, [8, 8])),
    "seven": set_key("llama.attention.head_count", U32, 7),
    "wide": set_key("llama.attention.value_length", U32, 16),
    "deep": set_key("llama.block_count", U32, 60000),
    "no-depth": lambda f: f.keys.pop("llama.block_count"),
    "k-quant": set_tensor("blk.0.ffn_down.weight", kind=12),
    "unknown": set_tensor("blk.0.ffn_down.weight", kind=99),
    "odd": lambda f: set_tensor("output_norm.weight", shape=[63], kind=8)(f),
    "other": lambda f: set_tensor("output_norm.weight", shape=[32])(f),
    "freqs": lambda f: f.tensors.update({"rope_freqs.weight": f.tensors["output_norm.weight"]}),
    "missing": lambda f: f.tensors.pop("blk.1.attn_k.weight"),
    "twice": lambda f: f.order.append("output_norm.weight"),
    "beyond": lambda f: f.offsets.update({"output_norm.weight": 1 << 40}),
    "shared": lambda f: f.offsets.update({name: 0 for name in f.tensors if "ffn" in name}),
    "between": lambda f: f.offsets.update({"output_norm.weight": 4}),
    "smollm": set_key("tokenizer.ggml.pre", STRING, "smollm"),
    "spm": set_key("tokenizer.ggml.model", STRING, "llama"),
    "no-pre": lambda f: f.keys.pop("tokenizer.ggml.pre"),
    "byte-token": lambda f: change_types(f, [6]),
    "types": lambda f: change_types(f, []),
    "same-token": twice_tokens,
}


def make(form, source, out):
    f = File(source)
    FORMS[form](f)
    f.write(out)


def attack_file(file, *command):
    """Most of it in the lists at the head."""
    with open(file, "rb") as opened:
        at = opened.read().index(b"token_embd.weight")
    attack(file, command, 11, 150, lambda data: [(4, 1400), (at - 300, at + 1500), (0, len(data))])


if __name__ == "__main__":
    {"make": make, "attack": attack_file}[sys.argv[1]](*sys.argv[2:])
