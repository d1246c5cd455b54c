"""Reads the public headers: their functions, structs, constants and callbacks, with the ctypes each should have.

    python3 headers.py INCLUDE_DIRECTORY        prints minimind/_ffi.py as the headers have it

It knows the few forms of declaration that these headers use and refuses any other, so nothing is passed over in silence.
"""
from __future__ import annotations

import pathlib
import re
import sys
from dataclasses import dataclass, field

SCALARS = {
    "char": "c_char", "int": "c_int", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64",
    "uint64_t": "c_uint64", "size_t": "c_size_t", "float": "c_float", "double": "c_double", "mm_status": "mm_status",
}


@dataclass
class Headers:
    """What all headers declare, in their order; types are ctypes expressions in the words of _ffi.py."""

    handles: list[str] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    callbacks: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    functions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)


def without_noise(text: str) -> str:
    """A header without comments, directives and the frame for C++."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", " ", text, flags=re.S)
    text = re.sub(r"\\\n", " ", text)
    return re.sub(r"^[ \t]*#[^\n]*", " ", text, flags=re.M)


def statements(text: str) -> list[str]:
    """Declarations, cut at semicolons outside braces, with single spaces."""
    found, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "{") - (c == "}")
        if c == ";" and depth == 0:
            found.append(" ".join(text[begin:i].split()))
            begin = i + 1
    if text[begin:].strip():
        raise ValueError(f"not closed: {text[begin:].strip()[:80]}")
    return [statement for statement in found if statement]


def split_arguments(text: str) -> list[str]:
    """Parameters, cut at commas outside parentheses; none for void."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [] if parts in ([""], ["void"]) else parts


class Reader:
    """Turns declarations into Headers."""

    def __init__(self) -> None:
        self.headers = Headers()

    def read(self, path: pathlib.Path) -> None:
        for statement in statements(without_noise(path.read_text(encoding="utf-8"))):
            try:
                self.declaration(statement)
            except ValueError as error:
                raise ValueError(f"{path.name}: {error}") from None

    def declaration(self, text: str) -> None:
        if match := re.fullmatch(r"enum \{(.*)\}", text):
            self.enum(match[1])
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} \1", text):
            self.headers.structs[match[1]] = [pair for one in statements(match[2]) for pair in self.fields(one)]
            self.headers.order.append(("struct", match[1]))
        elif match := re.fullmatch(r"typedef struct (\w+) \1", text):
            self.headers.handles.append(match[1])
            self.headers.order.append(("handle", match[1]))
        elif match := re.fullmatch(r"typedef (.+?) ?\(\*(\w+)\)\((.*)\)", text):
            self.headers.callbacks[match[2]] = self.signature(match[1], match[3])
            self.headers.order.append(("callback", match[2]))
        elif match := re.fullmatch(r"MM_API (.+?[ *])(\w+)\((.*)\)", text):
            self.headers.functions[match[2]] = self.function(match[1].strip(), match[3])
        elif text != "typedef int32_t mm_status":
            raise ValueError(f"cannot read this declaration: {text[:120]}")

    def enum(self, body: str) -> None:
        value = -1
        for item in split_arguments(body.rstrip().rstrip(",")):
            name, _, given = item.partition("=")
            value = int(given, 0) if given else value + 1
            self.headers.constants[name.strip()] = value

    def fields(self, text: str) -> list[tuple[str, str]]:
        """The fields of one declaration: "double beta1, beta2" has two."""
        if match := re.fullmatch(r"(.+?) ?\(\*(\w+)\)\((.*)\)", text):
            result, arguments = self.signature(match[1], match[3])
            return [(match[2], f"CFUNCTYPE({', '.join([result, *arguments])})")]
        found, base = [], ""
        for part in text.split(","):
            match = re.fullmatch(r"(.*?)(\w+)((?:\[\d+\])?)", part.strip())
            if match is None:
                raise ValueError(f"cannot read this field: {text}")
            base = match[1] if not found else base
            kind = self.type(base)
            found.append((match[2], f"{kind} * {match[3][1:-1]}" if match[3] else kind))
        return found

    def signature(self, result: str, arguments: str) -> tuple[str, list[str]]:
        return self.type(result, result=True), [self.argument(one) for one in split_arguments(arguments)]

    def function(self, result: str, arguments: str) -> tuple[str, list[str]]:
        kind, arguments_found = self.signature(result, arguments)
        # Text that comes with its length may hold NUL, where c_char_p would end.
        if kind == "c_char_p" and re.search(r"size_t \*length\b", arguments):
            kind = "POINTER(c_char)"
        return kind, arguments_found

    def argument(self, text: str) -> str:
        match = re.fullmatch(r"(.*[ *])(\w+)", text)
        if match is None:
            raise ValueError(f"cannot read this parameter: {text}")
        return self.type(match[1])

    def type(self, text: str, result: bool = False) -> str:
        constant = text.startswith("const char")
        text = text.replace("const", " ")
        stars = text.count("*")
        base = " ".join(text.replace("*", " ").split())
        if base == "void":
            kind, stars = ("None" if stars == 0 else "c_void_p"), max(0, stars - 1)
        elif base == "char" and constant and stars:
            kind, stars = "c_char_p", stars - 1
        elif base in SCALARS:
            kind = SCALARS[base]
        elif base in self.headers.structs or base in self.headers.handles or base in self.headers.callbacks:
            kind = base
        else:
            raise ValueError(f"unknown type: {text.strip()}")
        for _ in range(stars):
            kind = f"POINTER({kind})"
        return kind


def read_headers(include: str | pathlib.Path) -> Headers:
    """All of include/minimind/*.h, in the order in which minimind.h includes them."""
    include = pathlib.Path(include)
    names = re.findall(r"#include <minimind/(\w+\.h)>", (include / "minimind.h").read_text(encoding="utf-8"))
    on_disk = {path.name for path in (include / "minimind").glob("*.h")}
    if on_disk != set(names):
        raise ValueError(f"minimind.h does not include {sorted(on_disk - set(names))}")
    reader = Reader()
    for name in names:
        reader.read(include / "minimind" / name)
    return reader.headers


def as_module(headers: Headers) -> str:
    """The text of minimind/_ffi.py."""
    lines = [
        '"""The C declarations of <minimind.h>: constants, structs, callbacks and functions, name by name.',
        "",
        "Written by tests/python/headers.py from the headers; the tests hold it against headers, compiler and library.",
        '"""',
        "from __future__ import annotations",
        "",
        "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,",
        "                    c_uint32, c_uint64, c_void_p)",
        "",
        "",
        "class mm_status(c_int32):",
        '    """A type of its own, so that a status is told from a count."""',
        "",
        "",
    ]
    lines += [f"{name} = {value}" for name, value in headers.constants.items()]
    for kind, name in headers.order:
        if kind == "callback":
            result, arguments = headers.callbacks[name]
            lines += ["", "", f"{name} = CFUNCTYPE({', '.join([result, *arguments])})"]
            continue
        lines += ["", "", f"class {name}(Structure):"]
        if kind == "handle":
            lines.append('    """Opaque."""')
        else:
            lines.append("    _fields_ = [")
            lines += [f'        ("{field_name}", {type_name}),' for field_name, type_name in headers.structs[name]]
            lines.append("    ]")
    lines += ["", "", "# name: (result, arguments)", "FUNCTIONS = {"]
    for name, (result, arguments) in headers.functions.items():
        line = f'    "{name}": ({result}, [{", ".join(arguments)}]),'
        if len(line) > 120:
            line = f'    "{name}": ({result}, [\n        ' + ",\n        ".join(arguments) + ",\n    ]),"
        lines.append(line)
    return "\n".join(lines + ["}", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: headers.py INCLUDE_DIRECTORY")
    sys.stdout.write(as_module(read_headers(sys.argv[1])))
