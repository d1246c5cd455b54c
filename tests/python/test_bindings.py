"""The declarations in _ffi.py against the headers, the compiler and the library."""
from __future__ import annotations

import ctypes
import inspect
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

import headers
import minimind
from minimind import _ffi
from minimind._library import lib
from support import INCLUDE

HEADERS = headers.read_headers(INCLUDE)


def evaluate(expression: str):
    return eval(expression, {**vars(ctypes), **vars(_ffi)})


def opaque(name: str) -> bool:
    kind = getattr(_ffi, name, None)
    return isinstance(kind, type) and issubclass(kind, ctypes.Structure) and not hasattr(kind, "_fields_")


def same(one, other) -> bool:
    """ctypes keeps one class per POINTER() and CFUNCTYPE(); arrays are equal by element and length."""
    if one is other:
        return True
    return (isinstance(one, type) and isinstance(other, type) and issubclass(one, ctypes.Array)
            and issubclass(other, ctypes.Array) and (one._type_, one._length_) == (other._type_, other._length_))


class Headers(unittest.TestCase):
    """Name by name: a failure says what is missing and what is too much."""

    def test_every_function_is_bound_and_no_other(self):
        self.assertEqual(sorted(HEADERS.functions.keys() - _ffi.FUNCTIONS.keys()), [], "functions that are not bound")
        self.assertEqual(sorted(_ffi.FUNCTIONS.keys() - HEADERS.functions.keys()), [], "functions that are not declared")
        self.assertGreater(len(HEADERS.functions), 100)

    def test_every_function_has_the_types_of_its_declaration(self):
        for name, (result, arguments) in HEADERS.functions.items():
            with self.subTest(function=name):
                bound_result, bound_arguments = _ffi.FUNCTIONS[name]
                self.assertIs(bound_result, evaluate(result))
                self.assertEqual(len(bound_arguments), len(arguments))
                for i, expression in enumerate(arguments):
                    self.assertIs(bound_arguments[i], evaluate(expression), f"argument {i} of {name}: {expression}")

    def test_every_function_is_in_the_library_with_these_types(self):
        for name, (result, arguments) in _ffi.FUNCTIONS.items():
            function = inspect.unwrap(getattr(lib, name))
            self.assertIs(function.restype, result, name)
            self.assertEqual(list(function.argtypes), arguments, name)

    def test_every_status_is_checked(self):
        for name, (result, _) in _ffi.FUNCTIONS.items():
            checked = inspect.unwrap(getattr(lib, name)).errcheck is minimind._library.raise_on_failure
            self.assertEqual(checked, result is _ffi.mm_status, name)

    def test_every_struct_has_the_fields_of_its_declaration(self):
        for name, fields in HEADERS.structs.items():
            with self.subTest(struct=name):
                bound = getattr(_ffi, name)._fields_
                self.assertEqual([field for field, _ in bound], [field for field, _ in fields])
                for (field, kind), (_, expression) in zip(bound, fields):
                    self.assertTrue(same(kind, evaluate(expression)), f"{name}.{field}: {expression}")

    def test_every_handle_is_opaque(self):
        for name in HEADERS.handles:
            self.assertTrue(opaque(name), name)

    def test_every_callback_has_the_types_of_its_declaration(self):
        for name, (result, arguments) in HEADERS.callbacks.items():
            kind = getattr(_ffi, name)
            self.assertIs(kind._restype_, evaluate(result), name)
            self.assertEqual(kind._argtypes_, tuple(evaluate(one) for one in arguments), name)

    def test_every_constant_has_its_value_and_is_public(self):
        bound = {name: value for name, value in vars(_ffi).items() if name.startswith("MM_")}
        self.assertEqual(bound, HEADERS.constants)
        for name in bound:
            self.assertEqual(getattr(minimind, name), bound[name])

    def test_every_failing_status_has_an_exception(self):
        failing = {value for name, value in HEADERS.constants.items() if name.startswith("MM_ERR_")}
        self.assertEqual(set(minimind.errors.BY_STATUS), failing)

    def test_the_reader_refuses_what_it_does_not_know(self):
        for text in ("typedef union mm_u { int a; } mm_u;", "MM_API mm_unknown mm_f(void);", "int x"):
            with tempfile.TemporaryDirectory() as directory:
                file = pathlib.Path(directory) / "odd.h"
                file.write_text(text)
                with self.assertRaises(ValueError):
                    headers.Reader().read(file)


class Defaults(unittest.TestCase):
    """What mm_…_init() writes."""

    def sized(self):
        return [name for name, fields in HEADERS.structs.items() if name + "_init" in HEADERS.functions]

    def test_init_sets_the_size_and_every_byte(self):
        for name in self.sized():
            made, other = getattr(_ffi, name)(), getattr(_ffi, name)()
            size = ctypes.sizeof(made)
            ctypes.memset(ctypes.byref(other), 0xA5, size)
            for one in (made, other):
                getattr(lib, name + "_init")(ctypes.byref(one), size)
            self.assertEqual(made.struct_size, size, name)
            self.assertEqual(bytes(made), bytes(other), f"{name}_init leaves bytes as they were")

    def test_the_library_knows_no_more_bytes_than_we_do(self):
        """Beyond its own size of a struct the library writes zeros; with only zeros in the last field of ours, that is
        looked at by the compiler's test instead."""
        for name in self.sized():
            size = ctypes.sizeof(getattr(_ffi, name))
            room = (ctypes.c_char * (size + 64))()
            ctypes.memset(room, 0xA5, len(room))
            getattr(lib, name + "_init")(ctypes.cast(room, ctypes.POINTER(getattr(_ffi, name))), len(room))
            self.assertEqual(room.raw[size:], b"\0" * 64, name)

    def test_some_defaults_are_those_of_the_headers(self):
        self.assertEqual(minimind._library.struct(_ffi.mm_context_options).max_length, 512)
        self.assertAlmostEqual(minimind._library.struct(_ffi.mm_sampling).top_p, 0.85, places=6)
        self.assertEqual(minimind._library.struct(_ffi.mm_tensor_info).layer, -1)


@unittest.skipUnless(shutil.which(shlex.split(os.environ.get("CC", "cc"))[0]), "no C compiler")
class Compiler(unittest.TestCase):
    """The compiler's own view of the headers, which our reader has no part in."""

    @classmethod
    def setUpClass(cls):
        lines = []
        for name, fields in HEADERS.structs.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
                      for field, _ in fields]
        lines += [f'printf("{name} %lld\\n", (long long){name});' for name in HEADERS.constants]
        for name in HEADERS.structs:
            if name + "_init" in HEADERS.functions:
                lines.append(f"static const {name} {name}_value = {name.upper()}_INIT; "
                             f'show("{name}=", &{name}_value, sizeof {name}_value);')
        source = ("#include <minimind.h>\n#include <stdio.h>\n"
                  "static void show(const char *name, const void *data, size_t size)\n{\n    printf(\"%s \", name);\n"
                  "    for (size_t i = 0; i < size; i++)\n        printf(\"%02x\", ((const unsigned char *)data)[i]);\n"
                  "    printf(\"\\n\");\n}\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
        with tempfile.TemporaryDirectory() as directory:
            file, program = pathlib.Path(directory) / "layout.c", pathlib.Path(directory) / "layout"
            file.write_text(source)
            compiler = shlex.split(os.environ.get("CC", "cc"))
            subprocess.run([*compiler, "-I", str(INCLUDE), str(file), "-o", str(program)], check=True)
            output = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
        cls.facts = {line.split()[0]: line.split()[1:] for line in output.splitlines()}

    def test_sizes_and_offsets_are_the_compilers(self):
        for name, fields in HEADERS.structs.items():
            kind = getattr(_ffi, name)
            self.assertEqual(self.facts[name], [str(ctypes.sizeof(kind))], name)
            for field, _ in fields:
                place = getattr(kind, field)
                self.assertEqual(self.facts[f"{name}.{field}"], [str(place.offset), str(place.size)], f"{name}.{field}")

    def test_constants_are_the_compilers(self):
        for name in HEADERS.constants:
            self.assertEqual(self.facts[name], [str(getattr(_ffi, name))], name)

    def test_init_functions_write_what_the_macros_have(self):
        for name in HEADERS.structs:
            if name + "_init" in HEADERS.functions:
                made = minimind._library.struct(getattr(_ffi, name))
                self.assertEqual(self.facts[name + "="], [bytes(made).hex()], name)
