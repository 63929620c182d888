"""Which lane each lane takes from: the table against what the emulator moves."""

import numpy as np
import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "emulator"))
from emulating import POINTERS, execute
from gfx950_assembler import assemble

from mlagen.binary import load_code_object
from mlagen.binary.exchanges import NONE, fixed_sources

DPP = [
    *(f"quad_perm:[{text}]" for text in ("0,1,2,3", "3,2,1,0", "1,1,3,3")),
    *(f"{name}:{amount}" for name in ("row_shl", "row_shr", "row_ror") for amount in (1, 7, 15)),
    *(f"row_newbcast:{lane}" for lane in (0, 5, 15)),
    "wave_shl:1", "wave_rol:1", "wave_shr:1", "wave_ror:1",
    "row_mirror", "row_half_mirror", "row_bcast:15", "row_bcast:31",
]  # fmt: skip
MASKS = ("row_mask:0xf bank_mask:0xf", "row_mask:0x5 bank_mask:0xf", "row_mask:0xf bank_mask:0x3")
SWIZZLES = ("swizzle(SWAP,16)", "swizzle(QUAD_PERM,2,3,0,1)", "swizzle(REVERSE,8)", "0x1234",
            "swizzle(BROADCAST,4,1)", "0xff", "0x801b")  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [f"v_mov_b32_dpp v3, v4 {control} {masks}" for control in DPP for masks in MASKS]
    + [f"ds_swizzle_b32 v3, v4 offset:{pattern}" for pattern in SWIZZLES],
)
def test_the_table_says_what_the_emulator_moves(text):
    body = f"""
  v_mov_b32 v3, 1000
  v_mov_b32 v4, v0
  s_nop 1
  {text}
  s_waitcnt lgkmcnt(0)
  v_lshlrev_b32 v1, 2, v0
  global_store_dword v1, v3, s[6:7]
"""
    kernel = load_code_object(assemble(f"{POINTERS}{body}\n  s_endpgm\n")).kernel()
    (exchange,) = (i for i in kernel.instructions if i.mnemonic.startswith(text.split()[0][:9])
                   and fixed_sources(i) is not None)  # fmt: skip
    sources = fixed_sources(exchange)
    out, _ = execute(body)
    expected = np.array([1000 if source == NONE else source for source in sources])
    assert (out[:64] == expected).all()
