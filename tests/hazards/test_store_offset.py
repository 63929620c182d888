"""A buffer store with an SGPR offset whose data the next vector instruction overwrites: the audit
and the emulator tell it, and one wait state silences both (LLVM PR 197267, found on gfx950)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None or importlib.util.find_spec("numba") is None:
    pytest.skip("no assembler or no emulator (pip install 'mlagen[cpu]')", allow_module_level=True)
sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("binary", "emulator")]

from emulating import POINTERS, execute, kinds
from gfx950_assembler import assemble

from mlagen.audit.gfx950.check import audit_code_object

STORE = """
  v_lshlrev_b32 v1, 4, v0
  global_load_dwordx4 v[4:7], v1, s[4:5]
  s_mov_b32 s8, s6
  s_and_b32 s9, s7, 0xffff
  s_mov_b32 s10, 0x2000
  s_mov_b32 s11, 0x27000
  s_mov_b32 s14, 1024
  s_waitcnt vmcnt(0)
  buffer_store_dwordx4 v[4:7], v1, s[8:11], {offset} offen
{between}
  v_pk_mul_f32 v[4:5], v[4:5], v[4:5]
  s_waitcnt vmcnt(0)
"""
BUBBLE = {0: "", 1: "  s_nop 0", 2: "  s_nop 1"}


@pytest.mark.parametrize(("offset", "due"), [("s14", 1), ("0", 2)])
@pytest.mark.parametrize("given", [0, 1, 2])
def test_what_is_due_is_told_by_both(offset: str, due: int, given: int) -> None:
    body = STORE.format(offset=offset, between=BUBBLE[given])
    wanted = [f"s_nop {due - given - 1}"] if given < due else []
    code = assemble(f"{POINTERS}{body}\n  s_endpgm\n")
    told = [f for f in audit_code_object(code).errors if f.rule == "wait-states"]
    assert [finding.needs for finding in told] == wanted
    source = np.arange(256, dtype=np.float32).view(np.uint32)
    _, result = execute(body, source, np.zeros(1024, np.uint32))
    assert kinds(result) == ["wait-states"] * len(wanted)
    assert [finding.needs for finding in result.findings] == wanted
