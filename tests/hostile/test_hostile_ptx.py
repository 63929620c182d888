"""PTX of strangers: the emulator answers or refuses, in 20 s of processor time and 2 GB.

`MLAGEN_ACCEPTANCE=1` runs every text, with blocks and clusters of the greatest size too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from sandbox import Sandbox

SMALL = "grid = [1, 1, 1]\nblock = [32, 1, 1]\nallow_unset = true\n"
LARGE = """grid = [16, 65535, 1]
block = [1024, 1, 1]
cluster = [16, 1, 1]
dynamic_shared = 100000
workgroups = [[0, 0, 0]]
allow_unset = true
"""
ALL = "MLAGEN_ACCEPTANCE" in os.environ


def _text(body: str, head: str = "", registers: str = "") -> str:
    return (
        f".version 8.6\n.target sm_90a\n.address_size 64\n{head}.visible .entry k()\n{{\n"
        f".reg .pred %p<8>; .reg .b32 %r<8>; .reg .b64 %rd<8>;\n{registers}\n{body}\nret;\n}}\n"
    )


def _functions(count: int, times: int) -> str:
    """Functions that call the one before them so often."""
    return "".join(
        f".func f{n}()\n{{\n" + f"call f{n - 1};\n" * (times if n else 0) + "ret;\n}\n"
        for n in range(count)
    )


# The text, and what refuses it; "" where it has an answer.
TEXTS = {
    "2^40 calls": (_text("call f39;", _functions(40, 2)), "more than 10000 calls"),
    "deep calls": (_text("call f1999;", _functions(2000, 1)), "more than 1000 functions"),
    "recursion": (_text("call f;", ".func f() { call f; ret; }\n"), "recursion: f"),
    "registers": (
        _text(
            "\n".join(f"mov.b32 %z{n}, 1;" for n in range(12_000)),
            registers=".reg .b32 %z<12000>;",
        ),
        "",
    ),
    "declared registers": (_text("", registers=".reg .b32 %z<99999999>;"), "not understood"),
    "instructions": (_text("add.u32 %r1, %r1, 1;\n" * 200_000), "more than 100000 instructions"),
    "branches": (
        _text("".join(f"L{n}: bra L{n * 7919 % 12_000};\n" for n in range(12_000))),
        "has not ended",
    ),
    "a table of branches": (
        _text("t: .branchtargets " + ", ".join(["A"] * 50_000) + ";\nA: brx.idx %r1, t;"),
        "has not ended",
    ),
    "blocks": (_text("{" * 20_000 + "}" * 20_000), "nested too deeply"),
    "vectors": (_text("mov.b64 %rd1, " + "{" * 50_000 + "}" * 50_000 + ";"), "nested too deeply"),
    "modifiers": (_text("add" + ".u32" * 50_000 + " %r1, %r1, 1;"), "does not model"),
    "comments": (_text("/*" * 100_000), "never closed"),
    "positions": (_text(".loc 1 1 1\n" * 100_000), ""),
    "variables": (_text("", ".global .b8 g[268435456];\n"), ""),
    "initial values": (
        _text("", ".global .b64 g[50000] = {" + ", ".join(["g"] * 50_000) + "};\n"),
        "",
    ),
}
SAMPLE = ("2^40 calls", "registers", "branches", "vectors", "variables")


@pytest.mark.parametrize("name", TEXTS if ALL else SAMPLE)
def test_texts(sandbox: Sandbox, tmp_path: Path, name: str) -> None:
    text, said = TEXTS[name]
    (tmp_path / "k.ptx").write_text(text)
    for launch in (SMALL, LARGE) if ALL or name == "registers" else (SMALL,):
        (tmp_path / "launch.toml").write_text(launch)
        ran = sandbox.run(
            *("emulate", "k.ptx", "--launch", "launch.toml", "--max-instructions", "40000"),
            cwd=tmp_path,
        )
        ran.check()
        if said or launch == SMALL:
            assert re.search(said, ran.err) and ran.code == (5 if said else 0), ran.err
        else:  # as many warps as a cluster may have
            assert ran.code in (0, 5), ran.err
