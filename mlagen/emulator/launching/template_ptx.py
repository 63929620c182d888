"""A launch file for PTX to start from: the entry's parameters, the rest to fill in."""

from __future__ import annotations

from mlagen.emulator.launching.template import key, quoted
from mlagen.emulator.ptx.host.entries import parameter_places
from mlagen.emulator.tensor_maps import ALIGN, BYTES
from mlagen.ptx import Entry, MemoryOperand, Parameter
from mlagen.ptx.types import access_bytes, bits_of

_BY_SIZE = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
_TYPES = {"f16": "f16", "f32": "f32", "f64": "f64", "bf16": "bf16"}
_MOST = 64  # members of a structure that are spelled out
_THREADS = 128  # of a block, where the entry does not say


def template_ptx(entry: Entry) -> str:
    """TOML text that `parse_launch` reads: one cluster, zeros and small buffers."""
    _, total = parameter_places(entry)
    block = (*(entry.block or (_THREADS,)), 1, 1)[:3]
    cluster = (*(entry.cluster or (1,)), 1, 1)[:3]
    static = sum(v.size for v in entry.shared)
    lines = [
        f"# A launch: {total} bytes of parameters,",
        f"# {static} bytes of static shared memory.",
        f"kernel = {quoted(entry.name)}",
        f"grid = {list((1, 1, 1) if entry.grid_of_clusters else cluster)}  # "
        + ("clusters" if entry.grid_of_clusters else "blocks"),
        f"block = {list(block)}  # threads",
    ]
    if entry.cluster or entry.explicit_cluster:
        lines.append(f"cluster = {list(cluster)}  # blocks")
    if any(not v.size for v in entry.shared):
        lines.append("dynamic_shared = 0  # bytes of shared memory beside the static ones")
    for parameter in entry.parameters:
        lines += ["", *_parameter(entry, parameter)]
    return "\n".join(lines) + "\n"


def _parameter(entry: Entry, parameter: Parameter) -> list[str]:
    name = quoted(parameter.name)
    if parameter.size == BYTES and parameter.align >= ALIGN:
        return _map(parameter)
    if parameter.pointer or parameter.type in ("u64", "b64"):
        return [
            "[[arguments]]",
            f"name = {name}",
            f'buffer = {name}  # or, where it is no pointer: type = "u64", value = 0',
            f"[buffers.{key(parameter.name)}]",
            'bytes = 4096  # or: file = "x.npy"; or: dtype = "bf16", shape = [64, 32]',
            '# output = "x.npy"  # written after the run',
        ]
    if parameter.size <= 8:
        kind = _TYPES.get(parameter.type, _BY_SIZE.get(parameter.size, "u8"))
        return ["[[arguments]]", f"name = {name}", f'type = "{kind}"', "value = 0"]
    return _structure(entry, parameter)


def _structure(entry: Entry, parameter: Parameter) -> list[str]:
    """Its members as the code loads them."""
    members = _loaded(entry, parameter)
    lines = [
        f"# {quoted(parameter.name)}: a structure of {parameter.size} bytes, aligned to "
        f"{parameter.align}.",
        "# What the code loads of it by name; a tensor map in it goes to an offset of its own.",
    ]
    end = 0
    for offset, size in members[:_MOST] or [(0, 1)]:
        if offset < end:
            continue  # a part of what was loaded whole
        end = offset + size
        lines += [
            "[[arguments]]",
            f"name = {quoted(parameter.name)}",
            f"offset = {offset}",
            f'type = "{_BY_SIZE.get(size, "u8")}"  # or: buffer = NAME; or f32 …',
            "value = 0",
        ]
    return lines


def _loaded(entry: Entry, parameter: Parameter) -> list[tuple[int, int]]:
    """(offset, bytes) of what the code loads of a parameter by its name, widest first."""
    found: set[tuple[int, int]] = set()
    for i in entry.instructions:
        for operand in i.operands:
            if (
                i.name != "ld"
                or not isinstance(operand, MemoryOperand)
                or operand.base != parameter.name
            ):
                continue
            whole, size = access_bytes(i.parts), max(bits_of(i.parts)[1] // 8, 1)
            found |= {(operand.offset + at, size) for at in range(0, whole, size)}
    inside = [(at, size) for at, size in found if 0 <= at <= parameter.size - size]
    return sorted(inside, key=lambda member: (member[0], -member[1]))


def _map(parameter: Parameter) -> list[str]:
    name = quoted(parameter.name)
    return [
        "# 128 bytes, aligned to 64: a tensor map, as a rule.",
        "[[arguments]]",
        f"name = {name}",
        f"tensor_map = {name}",
        "[[tensor_maps]]",
        f"name = {name}",
        f"buffer = {name}",
        'dtype = "bf16"',
        "dims = [64, 64]  # elements, the innermost first",
        "strides = [128]  # bytes, of all dimensions but the innermost",
        "box = [64, 64]  # elements of a copy",
        '# swizzle = "128B"; fill = "nan"; element_strides = [1, 1]; l2 = "128B"',
        f"[buffers.{key(parameter.name)}]",
        'dtype = "bf16"',
        'shape = [64, 64]  # or: file = "x.npy"',
    ]
