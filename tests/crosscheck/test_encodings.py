"""Each instruction that a template may write, in each of its forms, and each immediate at its
limits: what LLVM makes of the text is what the generator's microcode table reads, bit by bit."""

import itertools
import subprocess

import pytest
from gfx950_assembler import assemble
from test_every_instruction import PARSER, WHERE, crossing, forms, plain
from turned_bits import missed_bits

from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen import encoding
from mlagen.targets.gfx950.codegen.agree import _compared, code_of

LIMITS = [
    "buffer_load_dword v1, v2, s[8:11], 0 offen offset:4095 sc0 nt sc1",
    "buffer_load_dword v1, v[2:3], s[8:11], s4 idxen offen offset:1",
    "buffer_load_dword v1, off, s[8:11], -16",
    "buffer_load_dwordx4 v2, s[8:11], m0 offen offset:4095 lds",
    "global_load_dword v1, v[2:3], off offset:4095",
    "global_load_dwordx4 v[4:7], v1, s[8:9] offset:-4096 nt",
    "global_store_dword v[2:3], a4, off offset:-1",
    "ds_read_b32 v1, v2 offset:65535", "ds_read2_b32 v[2:3], v1 offset0:255 offset1:254",
    "ds_write2_b64 v1, v[2:3], v[4:5] offset0:1 offset1:255",
    "ds_write_b128 v1, a[4:7] offset:65520", "ds_swizzle_b32 v1, v2 offset:0x8055",
    "s_load_dwordx8 s[16:23], s[4:5], 0xfffff", "s_load_dword s4, s[6:7], -0x100000",
    "s_movk_i32 s4, -32768", "s_addk_i32 s4, 32767", "s_nop 15", "s_setprio 3",
    "v_mov_b32 v1, 64", "v_mov_b32 v1, 65", "v_mov_b32 v1, -16", "v_mov_b32 v1, -17",
    "v_mov_b32 v1, 0xffffffff", "v_mov_b32 v1, 0x80000000", "v_mov_b32 v1, 1.0",
    "v_mov_b32 v1, 0.1", "v_mov_b32 v1, 0.15915494", "v_mov_b32 v1, -4.0", "s_mov_b64 s[4:5], -1",
    "s_mov_b64 s[4:5], 0x12345678", "v_add_f32 v1, -v2, |v3| clamp mul:4",
    "v_add_f32 v1, -|v2|, v3", "v_fma_f32 v1, -v2, v3, -|s4|",
    "v_pk_fma_f32 v[2:3], v[4:5], s[6:7], v[8:9] op_sel:[1,0,1] op_sel_hi:[0,1,0] neg_lo:[1,0,0]",
    "v_pk_mul_f32 v[2:3], v[4:5], v[6:7] op_sel_hi:[1,0] neg_hi:[0,1]",
    "v_cvt_pk_fp8_f32 v1, v2, v3 op_sel:[0,0,1]",
    "v_cvt_scalef32_pk_bf16_fp8 v1, v2, v3 op_sel:[1,0,0]",
    "v_mfma_f32_32x32x16_bf16 a[16:31], v[0:3], v[4:7], a[16:31]",
    "v_mfma_f32_32x32x16_bf16 v[16:31], a[0:3], v[4:7], 1.0 cbsz:1 abid:1",
    "v_mfma_f32_32x32x64_f8f6f4 v[16:31], v[0:7], a[8:15], 0",
    "v_cmp_class_f32 s[10:11], v2, 3", "v_addc_co_u32 v1, vcc, v2, v3, vcc",
]  # fmt: skip


def encoded(texts):
    """(instruction, its bytes) of each text, by LLVM's assembler."""
    code = code_of(assemble("\n".join((*texts, "END:", "  s_endpgm")), vgprs=512, accum=256))
    at, found = 0, []
    for text in texts:
        size = encoding.size_of(code, at)
        instruction = PARSER.line(text, WHERE)
        assert instruction is not None
        found.append((instruction, code[at : at + size]))
        at += size
    assert code[at:] == (0xBF810000).to_bytes(4, "little")  # s_endpgm: the sizes are right
    return found


TEXTS = [*plain(), *crossing(), *forms(), *LIMITS]


def test_what_is_encoded_is_what_is_written():
    for instruction, raw in encoded(TEXTS):
        _compared(instruction, raw, "schedule.py")


def test_every_bit_counts():
    missed = [bit for each in encoded(TEXTS) for bit in missed_bits(*each)]
    assert not missed


@pytest.mark.parametrize(
    "text",
    [
        *(f"buffer_load_dword v1, v2, s[8:11], 0 offen offset:{n}" for n in (4096, 5120, 8191)),
        "buffer_store_dword v1, v2, s[8:11], 0 offen offset:4096",
        "buffer_load_dword v1, v2, s[8:11], 0 offen offset:-1",
        "global_load_dword v1, v[2:3], off offset:4096", "ds_read_b32 v1, v2 offset:65536",
        "ds_read2_b32 v[2:3], v1 offset0:256", "s_load_dword s4, s[6:7], 0x200000",
        "s_movk_i32 s4, 65535", "s_movk_i32 s4, 65536", "s_nop 16", "s_setprio 4",
        "v_mov_b32 v1, 0x100000000", "s_mov_b64 s[4:5], 0x100000000", "v_mov_b32 v1, 1e50",
        "v_mfma_f32_32x32x16_bf16 v[16:31], v[0:3], v[4:7], 0 cbsz:8",
    ],
)  # fmt: skip
def test_what_does_not_fit_its_field_is_refused(text):
    """By the assembler, or where it takes the text, by the comparison."""
    try:
        ((instruction, raw),) = encoded([text])
    except (AssertionError, subprocess.CalledProcessError) as error:
        assert "error:" in str(error)
        return
    with pytest.raises(TemplateError):
        _compared(instruction, raw, "schedule.py")


def test_all_immediates_of_a_wait_are_compared():
    texts = [
        f"s_waitcnt vmcnt({vm}) lgkmcnt({lgkm})"
        for vm, lgkm in itertools.product((0, 15, 16, 62), (0, 14))
    ]
    code = code_of(assemble("\n".join((*texts, "  s_endpgm"))))
    from mlagen.targets.gfx950.codegen.program import ProgramInstruction

    waits = [ProgramInstruction(text, "s_waitcnt", "wait", origin=WHERE) for text in texts]
    for at, wait in enumerate(waits):
        raw = code[4 * at : 4 * at + 4]
        _compared(wait, raw, "schedule.py")
        for other in waits:
            if other is not wait:
                with pytest.raises(TemplateError):
                    _compared(other, raw, "schedule.py")
