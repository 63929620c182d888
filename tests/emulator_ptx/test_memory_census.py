"""Every form of the memory instructions that is known from kernels of others, and of ours."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from running import kernel

from mlagen.emulator.ptx.memory import memory_rows as z
from mlagen.emulator.ptx.translate import memory
from mlagen.emulator.ptx.translate.rows import Translator
from mlagen.ptx import Entry, read_ptx

# Opcodes with operands as compilers write them; b16, b32 and b64 registers are h, r and rd.
FORMS = """
ld.param.v2.u32 {r1, r2}, [rd1+28]
ld.global.nc.s32 r1, [rd1]
ld.global.nc.L1::evict_last.L2::256B.v4.s32 {r1, r2, r3, r4}, [rd1]
ld.global.nc.L1::no_allocate.L2::evict_normal.L2::256B.v4.u64 {rd1, rd2, rd3, rd4}, [rd5]
ld.global.nc.L1::evict_normal.L2::256B.v8.s32 {r1, r2, r3, r4, r5, r6, r7, r8}, [rd1]
ld.global.L1::evict_first.L2::cache_hint.b32 { r1 }, [ rd1 + 0 ], rd2
ld.global.cg.b32 r1, [rd1]
ld.volatile.global.b32 r1, [rd1]
ld.shared.v2.u8 {h1, h2}, [r1]
ld.shared.v4.u32 {r1, r2, r3, r4}, [r5+16]
ld.local.b32 r1, [rd1]
st.weak.shared::cta.b128 [r1], q1
st.shared::cta.b32 [r1], r2
st.v4.u32 [rd1], {r1, r2, r3, r4}
st.u64 [rd1], rd2
st.shared.v4.u16 [r1], {h1, h2, h3, h4}
st.global.cs.b32 [rd1], r1
st.global.v2.f32 [rd1], {f1, f2}
red.global.gpu.relaxed.add.v4.f32 [rd1], {f1, f2, f3, f4}
red.global.gpu.relaxed.add.noftz.f16 [rd1], h1
red.global.gpu.relaxed.add.u32 [rd1], r1
atom.relaxed.sys.shared.add.u32 r1, [r2], r3
atom.global.gpu.acq_rel.max.s64 rd1, [rd2], rd3
atom.global.acquire.gpu.cas.b32 r1, [rd1], 0, 1
atom.global.gpu.release.exch.b32 r1, [rd1], 0
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {r1, r2, r3, r4}, [r5]
ldmatrix.sync.aligned.x4.m8n8.shared.b16 {r1, r2, r3, r4}, [r5+32]
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r1}, [r5]
stmatrix.sync.aligned.x4.m8n8.shared.b16 [r1], {r2, r3, r4, r5}
stmatrix.sync.aligned.m8n8.x4.shared.b16 [r1], {r2, r3, r4, r5}
shfl.sync.bfly.b32 r1, r2, 16, 31, -1
shfl.sync.up.b32 r1|p1, r2, 1, 0, -1
elect.sync r1|p1, 0xFFFFFFFF
elect.sync _|p1, -1
vote.sync.any.pred p1, p2, -1
vote.sync.all.pred p1, !p2, -1
redux.sync.add.s32 r1, r2, r3
bar.warp.sync -1
prefetch.tensormap [rd1]
"""


@pytest.mark.parametrize("form", FORMS.strip().splitlines())
def test_forms(form: str) -> None:
    opcode, _, rest = form.partition(" ")
    for name in ("rd", "r", "h", "f", "q", "p"):
        for number in range(1, 9):
            rest = re.sub(rf"\b{name}{number}\b", f"%{name}{number}", rest)
    entry = read_ptx(kernel(f"{opcode} {rest}; ret;", version="8.8")).entries[0]
    assert untranslated(entry) == []


def untranslated(entry: Entry) -> list[str]:
    """The memory instructions of a kernel that are refused, as the errors tell."""
    spaces = {v.name: (v.space, 0) for v in entry.variables if v.space != "param"}
    translator = Translator(entry, {**{p.name: ("param", 0) for p in entry.parameters}, **spaces})
    refused = []
    for i in entry.instructions:
        make = memory.TRANSLATIONS.get(".".join(i.parts[:2])) or memory.TRANSLATIONS.get(i.name)
        if make is None or i.parts[1:2] == ("async",) or "retval" in i.text:
            continue  # another class of instruction, and what a call gives back
        try:
            translator.encode(i, make(translator, i))
        except Exception as error:
            refused.append(f"{i.text}: {error}")
    return refused


def test_a_form_that_is_not_known_is_seen() -> None:
    entry = read_ptx(kernel("ld.global.v16.b32 %r1, [%rd1]; ret;")).entries[0]
    assert len(untranslated(entry)) == 1


FOREIGN = os.environ.get("MLAGEN_FOREIGN_PTX")


@pytest.mark.skipif(not FOREIGN, reason="MLAGEN_FOREIGN_PTX names no folder of PTX")
def test_every_form_in_a_folder() -> None:
    """All memory instructions of the .ptx files in the folder, in files of any target."""
    paths = sorted(Path(str(FOREIGN)).glob("**/*.ptx"))
    assert paths
    for path in paths:
        for entry in read_ptx(path.read_text(errors="replace")).entries:
            assert untranslated(entry) == [], path


def test_the_work_space_has_room_for_all_of_an_atomic() -> None:
    """Eight items of 32 lanes behind OLD, all below what other parts may use."""
    assert z.GLOBAL_LANES < z.OLD and z.OLD + 8 * 32 <= 2048
