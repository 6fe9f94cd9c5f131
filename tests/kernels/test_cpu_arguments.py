"""The arguments of the CPU kernels: Python's mirror of them against the C++ that reads them."""

from __future__ import annotations

import ctypes
import re

import pytest

from cpu_kernels import library
from octavo_kernels.cpu import calls as mirrored
from octavo_kernels.cpu import lora_records
from octavo_kernels.cpu.build import SOURCES
from octavo_kernels.cpu.library import Call, Program

C_TYPES = {"int64_t": ctypes.c_int64, "float": ctypes.c_float, "int32_t": ctypes.c_int32}


def structs() -> dict[str, list[tuple[str, type]]]:
    """The structs of operations.h, with ctypes' types of their fields."""
    text = re.sub(r"//.*", "", (SOURCES / "operations.h").read_text())
    found = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\};", text, re.DOTALL):
        fields = []
        for kind, pointer, names in re.findall(r"(?:const )?(\w+)(\*?) ([\w, ]+);", body):
            ctype = ctypes.c_void_p if pointer else C_TYPES[kind]
            fields += [(field.strip(), ctype) for field in names.split(",")]
        found[name] = fields
    return found


def test_python_lays_out_arguments_as_cpp_does():
    mirrors = {
        one.__name__: list(one._fields_)
        for one in (*vars(mirrored).values(), *vars(lora_records).values())
        if isinstance(one, type) and issubclass(one, ctypes.Structure) and hasattr(one, "_fields_")
    }

    assert mirrors == structs()


def test_every_operation_has_its_arguments():
    text = (SOURCES / "run.cpp").read_text()
    table = dict(re.findall(r'(?:named|row_wise)<(\w+), (\w+)>\("\w+"\)', text))

    assert {one.__name__: name for name, one in mirrored.ARGUMENTS.items()} == table
    for name, one in mirrored.ARGUMENTS.items():
        assert library().arguments_bytes(name) == ctypes.sizeof(one), name


def test_arguments_of_another_operation_are_refused():
    with pytest.raises(ValueError, match="'rotary' takes 64 bytes of arguments, not GatherRows"):
        Program(library(), [Call("rotary", mirrored.GatherRows())])


def test_an_unknown_operation():
    with pytest.raises(LookupError, match="the CPU kernels have no operation 'rms_nrom'"):
        library().operation("rms_nrom")
