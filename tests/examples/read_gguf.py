"""A file that convert wrote as GGUF holds the model and the tokenizer that it was made of.

    read_gguf.py FILE MODEL_DIR ARCHITECTURE DTYPE

Read by the format's own description, with none of the project's code; weights are compared with model.safetensors.
"""
import json
import os
import struct
import sys

import numpy as np

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPES = {"f32": 0, "q4_0": 2, "q8_0": 8, "bf16": 30}
BLOCKS = {0: (1, 4), 2: (32, 18), 8: (32, 34), 30: (1, 2)}   # numbers and bytes


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def text(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode("utf-8")

    def value(self, kind):
        if kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(count)]
        return self.text() if kind == STRING else self.take({U32: "I", I32: "i", F32: "f", BOOL: "?"}[kind])


def read_gguf(path):
    with open(path, "rb") as file:
        r = Reader(file.read())
    assert r.data[:4] == b"GGUF"
    r.at = 4
    assert r.take("I") == 3
    tensors, count, keys, found = r.take("Q"), r.take("Q"), {}, {}
    for _ in range(count):
        name = r.text()
        assert name not in keys
        keys[name] = r.value(r.take("I"))
    infos = []
    for _ in range(tensors):
        name = r.text()
        shape = [r.take("Q") for _ in range(r.take("I"))][::-1]
        infos.append((name, shape, r.take("I"), r.take("Q")))
    begin = end = (r.at + 31) // 32 * 32
    for name, shape, kind, offset in infos:
        numbers, size = BLOCKS[kind]
        length = int(np.prod(shape)) // numbers * size
        assert name not in found and begin + offset == end and offset % 32 == 0 and shape[-1] % numbers == 0, name
        found[name] = kind, shape, np.frombuffer(r.data, np.uint8, length, begin + offset)
        end = (begin + offset + length + 31) // 32 * 32
    assert end == len(r.data)
    return keys, found


def widen(kind, shape, data):
    """The numbers, and how far each may be from what it was made of."""
    if kind == 0:
        return data.view(np.float32).reshape(shape), 0
    if kind == 30:
        wide = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
        return wide, 0
    blocks = data.reshape(-1, BLOCKS[kind][1])
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if kind == 8:
        wide, off = blocks[:, 2:].view(np.int8) * scale, 0.57   # of 127 steps, in a scale of 11 bits
    else:
        wide, off = (np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1).astype(np.float32) - 8) * scale, 1.01
    return wide.reshape(shape), (np.abs(scale) * off * np.ones_like(wide)).reshape(shape)


def read_safetensors(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        raw = np.frombuffer(data, np.uint8)[slice(*t["data_offsets"])]
        wide = raw.view(np.float32) if t["dtype"] == "F32" else (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        out[name] = wide.reshape(t["shape"])
    return out


def turned(rows, position, theta, halves):
    """What RoPE makes of a head's rows [D], whose pairs are halves here and neighbours there."""
    D = len(rows)
    angles = position * theta ** (-np.arange(0, D, 2) / D)
    x, y = (rows[:D // 2], rows[D // 2:]) if halves else (rows[::2], rows[1::2])
    return np.concatenate([x * np.cos(angles) - y * np.sin(angles), x * np.sin(angles) + y * np.cos(angles)])


def check_scores(ours, theirs, prefix, keys, architecture):
    """Queries and keys that are turned as it is done there give the scores that they give here."""
    heads, groups = keys[architecture + ".attention.head_count"], keys[architecture + ".attention.head_count_kv"]
    theta, draw = keys[architecture + ".rope.freq_base"], np.random.default_rng(0)
    for head in range(heads):
        scores = []
        x, y = draw.standard_normal((2, ours[0].shape[1]))
        for (q, k), halves in ((ours, True), (theirs, architecture != "llama")):
            D = q.shape[0] // heads
            query = q[head * D:head * D + D] @ x
            key = k[head * groups // heads * D:][:D] @ y
            scores.append(turned(query, 7, theta, halves) @ turned(key, 3, theta, halves))
        assert abs(scores[0] - scores[1]) <= 1e-4 * abs(scores[0]) + 1e-6, (prefix, head, scores)


def check_tensors(weights, found, keys, architecture, dtype):
    plain = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    inside = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj",
              "ffn_gate_inp": "mlp.gate"}
    inside.update({"attn_" + a: "self_attn." + b for a, b in (("v", "v_proj"), ("q_norm", "q_norm"), ("k_norm", "k_norm"))})
    inside.update({"ffn_" + a: f"mlp.{a}_proj" for a in ("gate", "up", "down")})
    if architecture != "llama":
        inside.update({"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj"})
    seen = set()
    for name, (kind, shape, data) in found.items():
        wide, off = widen(kind, shape, data)
        if dtype == "bf16":   # vectors were rounded before they were widened
            off = np.abs(wide) * 2.0 ** -8
        layer = name.split(".")[1] if name.startswith("blk.") else None
        stem = name.split(".")[-2]
        assert kind == (0 if "norm" in stem or stem == "ffn_gate_inp" else TYPES[dtype]), name
        if stem.endswith("_exps"):
            names = [f"model.layers.{layer}.mlp.experts.{e}.{stem[4:-5]}_proj.weight" for e in range(shape[0])]
            assert np.all(np.abs(np.stack([weights[n] for n in names]) - wide) <= off), name
            seen.update(names)
        elif stem in plain or stem in inside:
            there = plain[stem] if layer is None else f"model.layers.{layer}.{inside[stem]}"
            assert np.all(np.abs(weights[there + ".weight"] - wide) <= off), name
            seen.add(there + ".weight")
        else:
            assert stem in ("attn_q", "attn_k"), name
            there = f"model.layers.{layer}.self_attn.{stem[-1]}_proj.weight"
            size = keys[architecture + ".attention.key_length"]
            pairs = weights[there].reshape(-1, 2, size // 2, shape[1]).swapaxes(1, 2)   # halves become neighbours
            assert np.all(np.abs(pairs.reshape(shape) - wide) <= off), name
            seen.add(there)
    assert seen == set(weights), seen ^ set(weights)
    for layer in range(keys[architecture + ".block_count"] if dtype == "f32" else 0):
        ours = [weights[f"model.layers.{layer}.self_attn.{x}_proj.weight"] for x in "qk"]
        check_scores(ours, [widen(*found[f"blk.{layer}.attn_{x}.weight"])[0] for x in "qk"], layer, keys, architecture)


def check_tokens(keys, directory, vocab_size):
    with open(os.path.join(directory, "tokenizer.json"), encoding="utf-8") as file:
        tokenizer = json.load(file)
    texts, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    assert len(texts) == len(types) == vocab_size and len(set(texts)) == vocab_size
    expected = {i: (text, 1) for text, i in tokenizer["model"]["vocab"].items()}
    expected.update({t["id"]: (t["content"], 3 if t["special"] else 4) for t in tokenizer["added_tokens"]})
    for i, pair in enumerate(zip(texts, types)):
        assert pair == expected.get(i, (f"[PAD{i}]", 5)), (i, pair)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    assert keys["tokenizer.ggml.merges"] == merges and keys["tokenizer.ggml.add_bos_token"] is False
    assert (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    with open(os.path.join(directory, "tokenizer_config.json"), encoding="utf-8") as file:
        template = json.load(file).get("chat_template")
    if isinstance(template, list):
        template = {one["name"]: one["template"] for one in template}["default"]
    assert keys.get("tokenizer.chat_template") == template


def main():
    path, directory, architecture, dtype = sys.argv[1:]
    keys, found = read_gguf(path)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    own = {name[len(architecture) + 1:]: value for name, value in keys.items() if name.startswith(architecture + ".")}
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    expected = {"vocab_size": config["vocab_size"], "context_length": config["max_position_embeddings"],
                "embedding_length": config["hidden_size"], "block_count": config["num_hidden_layers"],
                "feed_forward_length": config["intermediate_size"], "attention.head_count": heads,
                "attention.head_count_kv": config["num_key_value_heads"], "attention.key_length": size,
                "attention.value_length": size, "rope.dimension_count": size, "rope.freq_base": config["rope_theta"],
                "attention.layer_norm_rms_epsilon": float(np.float32(config["rms_norm_eps"]))}
    if architecture == "qwen3moe":
        expected.update({"expert_count": config["num_experts"], "expert_used_count": config["num_experts_per_tok"],
                         "expert_feed_forward_length": config["moe_intermediate_size"]})
    assert keys["general.architecture"] == architecture and own == expected, (own, expected)
    check_tensors(read_safetensors(os.path.join(directory, "model.safetensors")), found, keys, architecture, dtype)
    if os.path.exists(os.path.join(directory, "tokenizer.json")):
        check_tokens(keys, directory, config["vocab_size"])
        assert keys["tokenizer.ggml.eos_token_id"] == 2 and keys["tokenizer.ggml.bos_token_id"] == 1
    else:
        assert keys["tokenizer.ggml.model"] == "no_vocab" and "tokenizer.ggml.tokens" not in keys
    print(f"{architecture} in {dtype}: {len(found)} tensors, {len(keys)} keys")


main()
