"""`mlagen emulate FILE.ptx`: outputs, findings, templates, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TEXT = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 n)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
LAUNCH = """grid = [1, 1, 1]
block = [32, 1, 1]
buffers.out = { dtype = "u32", shape = [1], output = "out.npy" }
[[arguments]]
name = "p"
buffer = "out"
[[arguments]]
name = "n"
type = "u32"
value = 77
"""
RUN = ("emulate", "k.ptx", "--launch", "l.toml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.ptx").write_text(TEXT)
    (tmp_path / "l.toml").write_text(LAUNCH)
    return tmp_path


def test_a_run_and_its_output(mlagen: Callable[..., Any]) -> None:
    told = json.loads(mlagen(*RUN, "--fast", "--json").out)
    assert told["kernel"] == "k" and told["workgroups"] == 1 and told["findings"] == []
    assert told["counts"] == {"ld.param.u64": 1, "ld.param.u32": 1, "st.global.u32": 1, "ret": 1}
    assert np.load("out.npy").tolist() == [77]


def test_a_finding_with_its_lines(mlagen: Callable[..., Any], folder: Path) -> None:
    (folder / "k.ptx").write_text(TEXT.replace("    st.global", "    .loc 1 7 3\n    st.global"))
    (folder / "l.toml").write_text(LAUNCH.replace('"out"\n', '"out"\nbuffer_offset = 4\n'))
    done = mlagen(*RUN, "--mode", "random")
    assert (
        done.code == 4
        and "error[global-bounds]: warp 0: st.global.u32 [%rd1], %r1; at line 11" in (done.out)
    )
    assert ">     11  st.global.u32" in done.out and "line 11 is of ?:7:3" in done.out
    (finding,) = json.loads(mlagen(*RUN, "--json").out)["findings"]
    assert (finding["line"], finding["severity"]) == (11, "error")


def test_a_template_is_a_launch(mlagen: Callable[..., Any], folder: Path) -> None:
    (folder / "l.toml").write_text(mlagen("emulate", "k.ptx", "--template").out)
    assert mlagen(*RUN).code == 0


def test_a_trap_ends_the_run_with_findings(mlagen: Callable[..., Any], folder: Path) -> None:
    (folder / "k.ptx").write_text(TEXT.replace("ret;", "trap;"))
    done = mlagen(*RUN, "--no-sanitizer")
    assert done.code == 4 and "error[trap]: warp 0: trap; at line 11" in done.out
    assert np.load("out.npy").tolist() == [77]  # outputs are written all the same
