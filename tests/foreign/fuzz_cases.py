"""Cases of the fuzzer: damaged files, damaged code, and legal instructions in any order.

A case is made from (class, seed, number) alone, so one that fails can be made again. Each goes
through everything that reads foreign code: the ELF reader, the decoder, control flow, `mlagen
inspect`, the audit where it is there, and the emulator between guard zones.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from damaged_artifacts import damaged, read
from gfx950_assembler import assemble
from guards import guarded
from llvm_corpus import FILES, build
from test_decode import CORPUS, _bytes_of

from mlagen.artifact import Artifact
from mlagen.audit.gfx950 import audit_code_object
from mlagen.binary import CodeObject, KernelCode, load_code_object
from mlagen.binary.decode import decode_at
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.gfx950.translate import translate
from mlagen.errors import BinaryError, MlagenError
from mlagen.inspect.gfx950 import inspect_gfx950

MOST_INSTRUCTIONS = 2000  # wave-instructions of an emulated case
_STEPS = 20_000  # of an audit
_PROLOGUE = (
    "s_load_dwordx2 s[2:3], s[0:1], 0x0",
    "s_load_dwordx4 s[8:11], s[0:1], 0x8",
    "s_waitcnt lgkmcnt(0)",
    "v_lshlrev_b32 v4, 2, v0",
    "v_mov_b32 v5, 0",
)
_JUMPS = ("s_branch", "s_cbranch", "s_endpgm")


def objects() -> list[bytes]:
    """Whole code objects: LLVM's and small AITER ones (from MLAGEN_AITER)."""
    found = [build(name, "-O2") for name in FILES]
    found.append(assemble("  s_endpgm\n", vgprs=128, accum=64, lds=8192))
    folder = os.environ.get("MLAGEN_AITER")
    if folder:
        files = sorted(Path(folder).rglob("*.co"), key=lambda file: file.stat().st_size)
        found += [file.read_bytes() for file in files[::16]]
    return found


_objects = functools.lru_cache(maxsize=1)(objects)


@functools.lru_cache(maxsize=1)
def _base() -> KernelCode:
    """With all registers that instructions can name, so that most streams are executed."""
    return load_code_object(assemble("  s_endpgm\n", vgprs=512, accum=256, lds=8192)).kernel()


def _pieces_of(code: bytes) -> list[bytes]:
    parts, offset = [], 0
    while offset < len(code):
        size = decode_at(code, offset).size
        parts.append(code[offset : offset + size])
        offset += size
    return parts


@functools.lru_cache(maxsize=1)
def _pieces() -> list[bytes]:
    """One encoding of every instruction that the decoder's tests or the corpus hold."""
    found = _pieces_of(_bytes_of([line for line in CORPUS if not line.startswith(_JUMPS)]))
    for name in FILES:
        for kernel in load_code_object(build(name, "-O2")).kernels.values():
            for ins in kernel.instructions:
                if not ins.mnemonic.startswith(_JUMPS):
                    found.append(kernel.code[ins.offset : ins.offset + ins.size])
    return [piece for piece in sorted(set(found)) if _executed(piece)]


@functools.lru_cache(maxsize=1)
def _frame() -> tuple[bytes, bytes]:
    return _bytes_of(list(_PROLOGUE)), _bytes_of(["s_endpgm"])


@functools.lru_cache(maxsize=1 << 16)
def _executed(piece: bytes) -> bool:
    """Whether the piece is one instruction that the engine executes."""
    try:
        ins = decode_at(piece, 0)
        if ins.size != len(piece) or ins.mnemonic.startswith(_JUMPS):
            return False
        translate(dataclasses.replace(_base(), code=piece + _frame()[1]))
    except MlagenError:
        return False
    return True


def _word(source: random.Random) -> bytes:
    """A random word that decodes to something the engine executes, with the words it needs."""
    while True:
        raw = struct.pack("<QQ", source.getrandbits(64), source.getrandbits(64))
        raw = raw[: 8 * source.choice([1, 1, 1, 2])]
        if len(raw) == 16:
            raw = raw[:2] + b"\xac\xd3" + raw[4:]
        try:
            ins = decode_at(raw, 0)
        except BinaryError:
            continue
        if _executed(raw[: ins.size]):
            return raw[: ins.size]


@functools.cache
def _pool(number: int) -> list[bytes]:
    """Random words, made once: finding one takes several tries."""
    source = random.Random(f"pool/{number}")
    return [_word(source) for _ in range(250)]


def _turned(piece: bytes, source: random.Random, bits: int) -> bytes:
    """The piece with some bits changed, still an instruction that the engine executes."""
    for _ in range(8):
        changed = bytearray(piece)
        for _ in range(bits):
            changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
        if _executed(bytes(changed)):
            return bytes(changed)
    return piece


def _branch(source: random.Random) -> bytes:
    op = source.choice([2, 4, 5, 6, 7, 8, 9])
    distance = source.choice([*range(9), *range(65526, 65536)])
    return struct.pack("<I", 0xBF800000 | op << 16 | distance)


def _kernel_of(code: bytes, source: random.Random) -> CodeObject:
    kernel = dataclasses.replace(_base(), code=code)
    if source.random() < 0.2:
        descriptor = dataclasses.replace(
            kernel.descriptor,
            denormals_f32=source.choice([0, 3]),
            dx10_clamp=source.random() < 0.5,
            fp16_overflow_clamp=source.random() < 0.5,
            lds_bytes=source.choice([0, 5, 1024, 163840]),
            vgprs=source.choice([8, 128, 512]),
            accum_offset=source.choice([4, 64, 256]),
        )
        kernel = dataclasses.replace(kernel, descriptor=descriptor)
    return CodeObject("gfx950", {"k": kernel}, {})


def _stream(source: random.Random, piece: Callable[[], bytes], length: int) -> bytes:
    prologue, end = _frame()
    body = b"".join(_branch(source) if source.random() < 0.08 else piece() for _ in range(length))
    return prologue + body + end


def noise(source: random.Random) -> bytes:
    """A file of random bytes, some after a true ELF header."""
    body = source.randbytes(source.randint(0, 2048))
    whole = source.choice(_objects())
    return whole[: source.choice([0, 4, 16, 52, 64, 200])] + body


def truncated(source: random.Random) -> bytes:
    """An object that ends early, or lacks a stretch."""
    whole = source.choice(_objects())
    first = source.randrange(len(whole))
    if source.random() < 0.5:
        return whole[:first]
    return whole[:first] + whole[first + source.randint(1, 64) :]


def flipped(source: random.Random) -> bytes:
    """An object with changed bits, bytes or words."""
    whole = bytearray(source.choice(_objects()[:7] if source.random() < 0.9 else _objects()))
    for _ in range(source.choice([1, 1, 2, 4, 8])):
        place = source.randrange(min(len(whole), source.choice([64, 4096, len(whole)])))
        kind = source.random()
        if kind < 0.6:
            whole[place] ^= 1 << source.randrange(8)
        elif kind < 0.8:
            whole[place] = source.choice([0, 1, 0x7F, 0x80, 0xFF])
        else:
            raw = struct.pack("<I", source.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
            whole[place : place + 4] = raw[: len(whole) - place]
    return bytes(whole)


def text_noise(source: random.Random) -> CodeObject:
    """A kernel whose code is random bytes, or whole code with random stretches."""
    if source.random() < 0.3:
        return _kernel_of(source.randbytes(source.randint(0, 256)), source)
    code = load_code_object(source.choice(_objects()[:6]))
    kernel = code.kernels[source.choice(sorted(code.kernels))]
    text = bytearray(kernel.code)
    for _ in range(source.randint(1, 4)):
        place = source.randrange(len(text) // 4) * 4
        text[place : place + 8] = source.randbytes(len(text[place : place + 8]))
    return CodeObject("gfx950", {"k": dataclasses.replace(kernel, code=bytes(text))}, {})


def pieces(source: random.Random) -> CodeObject:
    """Instructions of the tests and the corpus in any order, some with changed bits."""

    def piece() -> bytes:
        chosen = source.choice(_pieces())
        return _turned(chosen, source, source.randint(1, 3)) if source.random() < 0.4 else chosen

    return _kernel_of(_stream(source, piece, source.randint(1, 24)), source)


def words(source: random.Random) -> CodeObject:
    """Random words of which each could run alone: every field has any value."""

    def word() -> bytes:
        if source.random() < 0.1:
            return _word(source)
        return source.choice(_pool(source.randrange(8)))

    return _kernel_of(_stream(source, word, source.randint(1, 6)), source)


Damaged = tuple[Artifact, bytes]
CLASSES: dict[str, Callable[[random.Random], bytes | CodeObject | Damaged]] = {
    "noise": noise,
    "truncated": truncated,
    "flipped": flipped,
    "text noise": text_noise,
    "pieces": pieces,
    "words": words,
    "manifests": damaged,
}


def make(name: str, seed: int, number: int) -> tuple[bytes | CodeObject | Damaged, random.Random]:
    """Case `number` of a class, and the source of randomness for its launch."""
    source = random.Random(f"{name}/{seed}/{number}")
    return CLASSES[name](source), source


def _launch(code: CodeObject, kernel: str, source: random.Random) -> str:
    """Emulate one workgroup; "clean" or "findings"."""
    needed = code.kernels[kernel].kernarg_bytes
    first, second = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
    arguments = [
        Argument(0, Buffer("in", first, "read")),
        Argument(8, Buffer("out", second, "write")),
        Argument(16, np.uint32(source.choice([0, 64, 1024, 0xFFFFFFFF]))),
        Argument(20, np.uint32(source.choice([0x20000, 0, 0xFFFFFFFF]))),
    ]
    sizes = (8, 8, 4, 4)
    fitting = [a for a, size in zip(arguments, sizes, strict=True) if a.offset + size <= needed]
    with guarded():
        result = emulate(
            code,
            Launch(
                kernel=kernel,
                grid=(1, 1, 1),
                block=(source.choice([64, 64, 37, 128]), 1, 1),
                arguments=fitting,
            ),
            Settings(
                sanitize=source.random() < 0.9,
                mode=source.choice(["latest", "earliest", "random"]),
                seed=source.getrandbits(16),
                threads=1,
                max_instructions=MOST_INSTRUCTIONS,
            ),
        )
    return "findings" if result.findings else "clean"


def judge(case: bytes | CodeObject | Damaged, source: random.Random) -> str:
    """Take a case through every reader: what came of it. Only an MlagenError may be raised."""
    step = "read"
    try:
        if isinstance(case, tuple):
            for doing in read(case):
                step = doing
            return "audited"
        code = load_code_object(case) if isinstance(case, bytes) else case
        step = "decode"
        kernel = source.choice(sorted(code.kernels))
        instructions = code.kernels[kernel].instructions
        for ins in instructions:
            str(ins)
        if len(instructions) < 400 and source.random() < 0.25:
            step = "inspect"
            inspect_gfx950(Path("case.co"), code, code.kernels[kernel], None)
            step = "audit"
            audit_code_object(code, kernel=kernel, limit=_STEPS)
        step = "emulate"
        return f"emulated, {_launch(code, kernel, source)}"
    except MlagenError as why:
        assert why.message, "an error without a message"
        if "has not ended" in why.message:
            return "emulated, cut"
        return f"{step}: {type(why).__name__}"
