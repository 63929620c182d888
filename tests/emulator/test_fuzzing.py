"""Random instruction streams, some with flipped bits: an answer or a deliberate error, always."""

import dataclasses
import random

import numpy as np
import pytest
from gfx950_assembler import assemble
from test_decode import CORPUS, _bytes_of

from mlagen.binary import CodeObject, load_code_object
from mlagen.binary.decode import decode_at
from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.errors import BinaryError, MlagenError, UnsupportedError

_PROLOGUE = [
    "s_load_dwordx2 s[2:3], s[0:1], 0x0",
    "s_load_dwordx4 s[8:11], s[0:1], 0x8",
    "s_waitcnt lgkmcnt(0)",
    "v_mov_b32 v4, 0",
    "v_mov_b32 v5, 0",
]
_BRANCHES = [f"s_cbranch_scc{i} {n}" for i in (0, 1) for n in (1, 2, 4, 65530, 65534)]


def _split(lines):
    code, offset, parts = _bytes_of(lines), 0, []
    while offset < len(code):
        size = decode_at(code, offset).size
        parts.append(code[offset : offset + size])
        offset += size
    return parts


@pytest.fixture(scope="module")
def pieces():
    skipped = ("s_branch", "s_cbranch", "s_endpgm")
    return _split([line for line in CORPUS if not line.startswith(skipped)] + _BRANCHES)


@pytest.mark.parametrize("seed", range(3))
def test_random_streams(pieces, seed):
    source = random.Random(seed)
    base = load_code_object(assemble("  s_endpgm\n", vgprs=512, accum=256, lds=8192)).kernel()
    prologue, end = _bytes_of(_PROLOGUE), _bytes_of(["s_endpgm"])
    ran = 0
    for number in range(250):
        code = bytearray(prologue)
        for _ in range(source.randint(1, 25)):
            piece = bytearray(source.choice(pieces))
            if source.random() < 0.03:
                piece[source.randrange(len(piece))] ^= 1 << source.randrange(8)
            code += piece
        kernel = dataclasses.replace(base, code=bytes(code + end))
        words = np.zeros(256, np.uint32), np.zeros(256, np.uint32)
        arguments = [
            Argument(0, Buffer("in", words[0], "read")),
            Argument(8, Buffer("out", words[1], "write")),
            Argument(16, np.uint32(1024)),
            Argument(20, np.uint32(source.choice([0x20000, 0, 0xFFFFFFFF]))),
        ]
        try:
            emulate(
                CodeObject("gfx950", {"k": kernel}, {}),
                Launch(
                    grid=(1, 1, 1), block=(source.choice([64, 100, 128]), 1, 1), arguments=arguments
                ),
                Settings(
                    mode=source.choice(["latest", "earliest", "random"]),
                    seed=number,
                    max_instructions=3000,
                ),
            )
            ran += 1
        except MlagenError as why:
            assert isinstance(why, BinaryError | UnsupportedError) and why.message
    assert ran >= 25


def test_a_branch_into_an_instruction_is_refused():
    body = "  s_cbranch_scc0 1\n  v_mov_b32 v1, 0x7e020280\n  s_endpgm\n"  # literal: v_mov_b32
    with pytest.raises(UnsupportedError, match="middle of an instruction"):
        emulate(assemble(body), Launch(grid=(1, 1, 1), block=(64, 1, 1), arguments=[]))
