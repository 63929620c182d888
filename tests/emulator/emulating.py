"""Small kernels for the emulator's tests: each lane loads, something happens, it stores."""

from __future__ import annotations

import numpy as np
from gfx950_assembler import assemble

from mlagen.emulator import Argument, Buffer, EmulationResult, Launch, Settings, emulate

POINTERS = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  s_load_dwordx2 s[6:7], s[0:1], 0x8
  s_waitcnt lgkmcnt(0)
"""
"""s[4:5]: input, s[6:7]: output."""


def execute(
    body: str,
    source: np.ndarray | None = None,
    out: np.ndarray | None = None,
    *,
    waves: int = 1,
    grid: int = 1,
    mode: str = "latest",
    seed: int = 0,
    sanitize: bool = True,
    **frame: object,
) -> tuple[np.ndarray, EmulationResult]:
    """Run `body` (without s_endpgm) after the pointers are loaded; returns (output, result)."""
    source = np.zeros(64, np.uint32) if source is None else source
    out = np.zeros(64, np.uint32) if out is None else out
    code = assemble(f"{POINTERS}{body}\n  s_endpgm\n", **frame)
    result = emulate(
        code,
        Launch(
            grid=(grid, 1, 1),
            block=(64 * waves, 1, 1),
            arguments=[
                Argument(0, Buffer("source", source, "read")),
                Argument(8, Buffer("out", out, "write")),
            ],
        ),
        Settings(mode=mode, seed=seed, sanitize=sanitize),
    )
    return out, result


def kinds(result: EmulationResult) -> list[str]:
    return [finding.kind for finding in result.findings]


def load_rows(first: int, count: int) -> str:
    """v[first + i] = input row i of 64 dwords; v0 must hold the lane, v63 is used."""
    lines = ["  v_lshlrev_b32 v63, 2, v0"]
    lines += [
        f"  global_load_dword v{first + i}, v63, s[4:5] offset:{256 * i}"
        if i < 16
        else f"  global_load_dword v{first + i}, v63, s[8:9] offset:{256 * (i - 16)}"
        for i in range(count)
    ]
    setup = "  s_add_u32 s8, s4, 4096\n  s_addc_u32 s9, s5, 0\n" if count > 16 else ""
    return setup + "\n".join(lines) + "\n  s_waitcnt vmcnt(0)\n"


def store_rows(first: int, count: int, file: str = "v") -> str:
    """Output row i = v[first + i]."""
    lines = ["  v_lshlrev_b32 v63, 2, v0", "  s_nop 15", "  s_nop 7"]
    lines += [
        f"  global_store_dword v63, {file}{first + i}, s[6:7] offset:{256 * i}"
        for i in range(count)
    ]
    return "\n".join(lines) + "\n"
