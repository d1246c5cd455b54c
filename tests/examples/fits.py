"""What structured writes is JSON, of the shape that it was asked for, in as many tokens as it was given.

    fits.py PROGRAM TRIES MODEL
"""
import json
import random
import subprocess
import sys

person = {"type": "object", "required": ["age"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}, "kind": {"enum": ["a", "b", "c"]},
    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}, "ok": {"type": "boolean"}}}
points = {"type": "array", "minItems": 1, "items": {"type": "object", "properties": {"n": {"type": "number"}, "z": {"type": "null"}}}}
shapes = [
    person, {"type": "number"}, {"type": "integer"}, {"type": "string"}, {"type": "string", "minLength": 5, "maxLength": 7},
    {"type": "string", "minLength": 30}, {"enum": [1, 12, 123, "x", "xy世", None, [1, 2], {"a": 1.5}, True]},
    {"const": {'k"': ["\n\x01", 2, "😀"]}}, {"type": "array", "minItems": 2, "maxItems": 4, "items": points},
    {"type": "array", "items": {"type": "array", "items": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}}}},
    {"type": "array", "maxItems": 0, "items": {"type": "null"}}, {"type": "object", "properties": {}},
    {"type": "array", "minItems": 1, "items": {"enum": [1, 10, 100, -1]}},
    {"type": "integer", "minimum": 0, "maximum": 120}, {"type": "integer", "minimum": -7, "maximum": 5},
    {"type": "integer", "maximum": -120}, {"type": "integer", "exclusiveMinimum": 995, "exclusiveMaximum": 1004},
    {"type": "integer", "minimum": 199, "maximum": 201, "exclusiveMaximum": 201},
    {"type": "integer", "minimum": 0, "maximum": 0},
    {"type": "array", "minItems": 3, "items": {"type": "integer", "minimum": -1100, "maximum": -96}},
    {"type": "integer", "minimum": 999999999999998},
    {"type": "integer", "minimum": -999999999999999, "exclusiveMaximum": -99999999999999},
    {"type": "object", "properties": {'中文 "q" é\\': {"type": "string", "minLength": 1}}},
]


def pairs(members):
    """An object whose names differ, so that none hides another."""
    assert len(dict(members)) == len(members)
    return dict(members)


def same(one, other):
    return type(one) is type(other) and one == other


def fits(value, schema):
    if "const" in schema:
        return same(value, schema["const"])
    if "enum" in schema:
        return any(same(value, one) for one in schema["enum"])
    kind = schema["type"]
    if kind == "object":
        inner = schema["properties"]
        return isinstance(value, dict) and list(value) == list(inner) and all(fits(value[name], inner[name]) for name in inner)
    if kind == "array":
        return (isinstance(value, list) and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 1e9) and
                all(fits(one, schema["items"]) for one in value))
    if kind == "string":
        return isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1e9)
    if kind == "integer":
        return (type(value) is int and schema.get("minimum", -1e15) <= value <= schema.get("maximum", 1e15) and
                schema.get("exclusiveMinimum", -1e15) < value < schema.get("exclusiveMaximum", 1e15))
    types = {"number": (int, float), "boolean": (bool,), "null": (type(None),)}
    return type(value) in types[kind] and abs(value or 0) < 1e200


def run(schema, *options):
    command = [program, "--model", model, "--schema", schema, "--prompt", "x", "--threads", "1", *map(str, options)]
    return subprocess.run(command, capture_output=True, check=False)


def fewest_tokens(schema):
    """What is refused says how many it takes."""
    refused = run(schema, "--max-new-tokens", 1)
    if refused.returncode == 0:
        return 1
    assert refused.stdout == b"" and b" may need " in refused.stderr, refused
    needed = int(refused.stderr.decode().split(" may need ")[1].split()[0])
    assert run(schema, "--max-new-tokens", needed - 1).returncode == 1
    return needed


program, tries, model = sys.argv[1], int(sys.argv[2]), sys.argv[3]
draw = random.Random(1)
count = 0
for number, shape in enumerate(shapes):
    text = json.dumps(shape, ensure_ascii=number % 2 == 0, indent=number % 3 or None)
    least = fewest_tokens(text)
    for seed in range(tries):
        tokens = least + draw.choice([0, 0, 1, 2, 20, 200])
        made = run(text, "--max-new-tokens", tokens, "--seed", seed, "--temperature", draw.choice([0, 1, 5, 100]),
                   "--top-p", draw.choice([0.85, 1]))
        assert made.returncode == 0 and made.stderr == b"", (text, tokens, seed, made)
        lines = made.stdout.decode().split("\n")
        assert len(lines) == 2 and fits(json.loads(lines[0], object_pairs_hook=pairs), shape), (text, tokens, seed, made)
        count += 1
print(f"{count} answers fit")
