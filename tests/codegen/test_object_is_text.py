"""The object is the text: each build compares them instruction by instruction, every bit."""

from __future__ import annotations

import importlib.util
import random
import struct
import time
from itertools import chain

import pytest
from test_template_registers import extend, first_kernel, refusal
from turned_bits import missed_bits

from mlagen.codegen.build import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.errors import TemplateError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_prefill.problem import MlaConfigV2
from mlagen.targets.gfx950.codegen import encoding
from mlagen.targets.gfx950.codegen.agree import check_object, code_of
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.isa import TABLE

__all__ = ["first_kernel"]

KERNELS = {
    "prefill": ("mha_prefill_v2", MhaConfigV2(6, 3, page_size=16, ragged=True)),
    "e4m3": ("mla_prefill_v2", MlaConfigV2(2, 1, dtype="fp8_e4m3", page_size=1)),
    "accumulation registers": ("mla_decode_gfx950", MlaDecodeConfig(128)),
}


@pytest.fixture(scope="module", params=KERNELS)
def made(request):
    """(the printed program, the object, byte of each instruction in it)."""
    name, config = KERNELS[request.param]
    schedule = schedule_of(load(name), config, {})
    printed = list(chain.from_iterable(generate(schedule, templates_for("gfx950")).layout.runs()))
    code = build(name, config).code
    return printed, code, code.index(code_of(code))


def test_every_instruction_has_an_encoding():
    assert set(TABLE) <= encoding.KNOWN


def test_opcodes_are_those_of_the_machine_readable_isa():
    if importlib.util.find_spec("tinygrad") is None:
        pytest.skip("the decoder's tables are not installed (pip install 'mlagen[emulator]')")
    from tinygrad.runtime.autogen.amd.cdna import enum

    renamed = {"v_accvgpr_read_b32": "v_accvgpr_read", "v_accvgpr_write_b32": "v_accvgpr_write"}
    tables = {
        "SOP1Op": encoding._SOP1, "SOP2Op": encoding._SOP2, "SOPCOp": encoding._SOPC,
        "SOPPOp": encoding._SOPP, "SMEMOp": encoding._SMEM, "VOP1Op": encoding._VOP1,
        "VOP2Op": encoding._VOP2, "VOPCOp": encoding._VOPC, "VOP3POp": encoding._VOP3P
        | encoding._MAI, "DSOp": encoding._DS, "GLOBALOp": encoding._GLOBAL,
        "MUBUFOp": encoding._MUBUF,
    }  # fmt: skip
    wide = {name for name in dir(enum.VOP3SDOp) if not name.startswith("_")}
    for kind, table in {**tables, "VOP3Op": encoding._VOP3}.items():
        named = getattr(enum, kind)
        numbers = {}
        for member in named.__members__.values():
            name = member.name.lower().removesuffix("_e32").removesuffix("_e64")
            numbers[name] = member.value
        for number, name in table.items():
            if kind == "VOP3Op" and any(name.upper() in full for full in wide):
                continue
            assert numbers[renamed.get(name, name)] == number, (kind, name)


def test_what_is_built_agrees_and_soon(made):
    printed, code, _ = made
    started = time.process_time()
    check_object(code, printed, "schedule.py")
    assert time.process_time() - started < 0.5  # 0.02 to 0.03 s where nothing else runs


def test_every_bit_of_every_instruction_counts(made):
    """One bit of an instruction turned: it is told, whichever it is."""
    printed, code, _ = made
    text = code_of(code)
    at, found = 0, {}
    for x in printed:
        if x.pipe != "label":
            size = encoding.size_of(text, at)
            found.setdefault((x.mnemonic, text[at : at + size]), x)
            at += size
    drawn = random.Random(7).sample(sorted(found, key=str), min(150, len(found)))
    each = {name: (name, raw) for name, raw in found}  # one of every mnemonic at least
    turned = {*drawn, *each.values()}
    missed = [bit for name, raw in turned for bit in missed_bits(found[name, raw], raw)]
    assert not missed


def test_a_branch_to_another_place_is_told(made):
    printed, code, base = made
    text = code_of(code)
    at = 0
    for x in printed:
        if x.pipe == "label":
            continue
        if x.pipe == "branch" and x.target:
            break
        at += encoding.size_of(text, at)
    turned = bytearray(code)
    (word,) = struct.unpack_from("<I", turned, base + at)
    struct.pack_into("<I", turned, base + at, word & ~0xFFFF | (word + 1) & 0xFFFF)
    with pytest.raises(TemplateError, match=f"not to {x.target.replace('.', '[.]')}"):
        check_object(bytes(turned), printed, "schedule.py")


@pytest.mark.parametrize(
    ("line", "said", "takes"),
    [
        ("buffer_load_dword {{ lane }}, {{ lane }}, {{ row }}, 0 offen offset:4096",
         "offset is 0 in the object", "buffer_load_dword takes 0 to 4095"),
        ("buffer_load_dword {{ lane }}, {{ lane }}, {{ row }}, 0 offen offset:5120",
         "offset is 1024 in the object", "buffer_load_dword takes 0 to 4095"),
        ("buffer_store_dword {{ lane }}, {{ lane }}, {{ row }}, 0 offen offset:8191",
         "offset is 4095 in the object", "buffer_store_dword takes 0 to 4095"),
        ("s_nop 16", "the hardware reads at most 15", "s_nop takes 0 to 15"),
        ("s_setprio 4", "the hardware reads at most 3", "s_setprio takes 0 to 3"),
    ],
)  # fmt: skip
def test_a_cut_immediate_is_refused_at_its_lines(first_kernel, line, said, takes):
    extend(first_kernel, "store", line)
    message = refusal(first_kernel)
    assert said in message and takes in message
    assert ("offset" in message.partition("hint")[2]) == ("offset" in said)
    assert "columns/store.s.j2:2: the object is not the text: " in message
    assert "column_sums.py:" in message and ", store)" in message


@pytest.mark.parametrize(
    "line",
    [
        "buffer_load_dword {{ lane }}, {{ lane }}, {{ row }}, 0 offen offset:4095",
        "buffer_load_dword {{ lane }}, {{ lane }}, {{ row }}, {{ sizes[0] }} offen offset:4 nt",
        "v_mov_b32 {{ lane }}, -1.0",
        "v_mov_b32 {{ lane }}, 0.15915494",
        "v_mov_b32 {{ lane }}, 0x3e22f983",
        "v_mov_b32 {{ lane }}, 0.1",
        "v_mov_b32 {{ lane }}, -17",
        "v_mul_f32 {{ lane }}, 1.0, -{{ lane }}",
        "v_fma_f32 {{ lane }}, |{{ lane }}|, -2.0, {{ lane }} clamp mul:2",
        "v_pk_fma_f32 {{ total[0:2] }}, {{ total[0:2] }}, {{ total[2:4] }}, {{ total[0:2] }} "
        "op_sel:[0,1,0] op_sel_hi:[1,1,0] neg_lo:[0,0,1]",
        "s_load_dword {{ sizes[0] }}, {{ pointers[0:2] }}, {{ sizes[1] }}",
        "s_load_dword {{ sizes[0] }}, {{ pointers[0:2] }}, -4",
        "s_mov_b64 {{ sizes }}, -1",
        "s_nop 15",
    ],
)
def test_what_fits_its_field_is_built(first_kernel, line):
    from mlagen.app.build import build_artifact

    extend(first_kernel, "store", line)
    build_artifact(str(first_kernel), {}, {})
