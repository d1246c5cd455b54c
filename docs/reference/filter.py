#!/usr/bin/env python3
"""A header as Doxygen wants to read it. In the headers of libminimind one comment stands for the run of declarations
below it, for all names of a line, and a struct's for its initialiser: here each gets a copy."""
import re
import sys

STRUCT = re.compile(r"^(typedef )?struct (\w+) \{")
FIELDS = re.compile(r"^(\s+)([\w ]+?[ *])(\w+(?:, \*?\w+)+);(\s*)(/\*\*<.*)$")
# <think> in a comment is a word of a template, not HTML.
TAG = re.compile(r"<(/?[a-z_]+)>")
DECLARATION = re.compile(r"^(MM_API|typedef |#define MM_|enum )")


def comment_at(lines: list[str], start: int) -> int:
    """The line behind the comment that begins at `start`."""
    while "*/" not in lines[start]:
        start += 1
    return start + 1


def split_fields(lines: list[str], i: int, out: list[str]) -> int:
    """`double a, b; /**< c */` as two fields."""
    indent, kind, names, _, _ = FIELDS.match(lines[i]).groups()
    end = comment_at(lines, i)
    comment = "\n".join([FIELDS.match(lines[i]).group(5)] + lines[i + 1:end])
    out += [f"{indent}{kind}{name}; {comment}" for name in names.split(", ")]
    return end


def borrowed(comment: list[str], declaration: str) -> list[str]:
    """A comment for a declaration that shares it: parameters of the first one, and a result that this one may not have,
    become plain words."""
    comment = [re.sub(r"@param (\w+)", r"\1:", line) for line in comment]
    if declaration.startswith("MM_API void "):
        comment = [re.sub(r"@return.*?(?=Since:|\*/|$)", "", line) for line in comment]
    return comment


def filtered(lines: list[str]) -> list[str]:
    out: list[str] = []
    comment: list[str] = []  # the last one before a declaration
    fresh = False            # it stands right above
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith("/**") and not line.startswith("/**<"):
            end = comment_at(lines, i)
            comment, fresh = lines[i:end], True
            out += comment
            i = end
            continue
        if FIELDS.match(line):
            i = split_fields(lines, i, out)
            continue
        if line.startswith("#define MM_") and "_INIT " in line:
            name = line.split()[1]
            out.append(f"/** What a new {name[:-5].lower()} is set to before a program sets fields of its own. */")
        elif DECLARATION.match(line) and not fresh and comment:
            out += borrowed(comment, line)
        fresh = False
        if not line.strip():
            comment = []
        out.append(line)
        i += 1
    return out


text = TAG.sub(r"\\<\1\\>", open(sys.argv[1], encoding="utf-8").read())
print("\n".join(filtered(text.splitlines())))
