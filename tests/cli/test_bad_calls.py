"""Bad calls of all verbs: the documented exit code, a line that says why, and nothing left behind.

`bad_calls.txt` has one a line. Devices are reached by links in the test's own folder, so that a
command that replaced what it should write to would replace the link.
"""

from __future__ import annotations

import io
import itertools
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from scale_kernel import LAUNCH, write_case
from small_kernel import make
from test_cli_emulate_ptx import LAUNCH as PTX_LAUNCH
from test_cli_emulate_ptx import TEXT as PTX_TEXT

from mlagen.artifact import write_artifact
from mlagen.cli.main import run
from mlagen.cli.verbs import VERBS

ROOT = Path(__file__).resolve().parents[2]
GEMM = ROOT / "examples" / "gemm_bf16.py"
HEADS = "--set num_heads=8 --set num_kv_heads=2"
CALLS = [
    tuple(part.strip() for part in line.split("|", 2))
    for line in Path(__file__).with_name("bad_calls.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
# What is changed in the small kernel of test_cli_emulate_ptx, and in its launch file.
PTX_TEXTS = {
    "surface": ("ret;", "suld.b.1d.b32.trap %r1, [s, {%r2}];\n    ret;"),
    "threads": ("n)\n{", "n)\n.reqntid 64\n{"),
    "most": ("n)\n{", "n)\n.maxntid 16\n{"),
    "pairs": ("n)\n{", "n)\n.reqnctapercluster 2\n{"),
    "later": ("sm_90a", "sm_120a"),
    "map": (".u64 p", ".align 64 .b8 p[128]"),
    "large": ("ret;", ".shared .b8 s[232449];\n    ret;"),
    "wide": ("n)\n{", "n)\n.reqnctapercluster 17\n{"),
    "twice": (".visible .entry k(", ".visible .entry j() { ret; }\n.visible .entry k("),
}
PTX_LAUNCHES = {
    "right": ("grid", "grid"),
    "entry": ("grid", 'kernel = "zz"\ngrid'),
    "size": ('type = "u32"', 'type = "u64"'),
    "key": ("grid", "dynamic_lds = 4\ngrid"),
    "unknown": ("grid", "clusters = 4\ngrid"),
    "shared": ("grid", "dynamic_shared = 232449\ngrid"),
    "cluster": ("grid = [1, 1, 1]", "cluster = [17, 1, 1]\ngrid = [17, 1, 1]"),
    "few": ("grid", "workgroups = []\ngrid"),
    "whole": ("grid = [1", "cluster = [2, 1, 1]\ngrid = [3"),
    "npy": ('dtype = "u32", shape = [1], output = "out.npy"', 'file = "cut.npy"'),
    "map": (
        '[[arguments]]\nname = "p"\nbuffer = "out"',
        '[[tensor_maps]]\nname = "m"\nbuffer = "out"\ndtype = "f32"\ndims = [64]\nbox = [64]\n'
        '[[arguments]]\nname = "p"\ntensor_map = "m"',
    ),
}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is called by name; artifacts are built once."""
    folder = tmp_path_factory.mktemp("built")
    code, launch = write_case(folder, LAUNCH)
    write_artifact(make(), folder / "add")
    for target, *options in (("gfx950",), ("sm_90a", "--set", "m_tile=128")):
        assert (
            run(["build", str(GEMM), "--target", target, *options, "-o", f"{folder}/{target}"]) == 0
        )
    assert run(["build", "mha_prefill_v2", *HEADS.split(), "-o", f"{folder}/mha"]) == 0
    return {
        "ADD": f"{folder}/add", "GEMM_DIR": f"{folder}/gfx950", "PTX_DIR": f"{folder}/sm_90a",
        "PTX": f"{folder}/sm_90a/kernel.ptx", "MHA_DIR": f"{folder}/mha", "CODE": str(code),
        "LAUNCH": str(launch), "GEMM": str(GEMM), "HEADS": HEADS, "LONG": "a" * 300,
        "DIGITS": "9" * 5000, "FULL": "full",
    }  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: dict[str, str]) -> Path:
    """The folder that a bad call runs in."""
    here = tmp_path / "here"
    (here / "folder").mkdir(parents=True)
    (here / "plain").write_text("x")
    (here / "text.co").write_text("hello")
    (here / "text.ptx").write_text("hello")
    (here / "bytes.ptx").write_bytes(b"\xff\xfe")
    (here / "bad.toml").write_text("grid = [")
    (here / "k.ptx").write_text(PTX_TEXT)
    for name, (old, new) in PTX_TEXTS.items():
        (here / f"{name}.ptx").write_text(PTX_TEXT.replace(old, new))
    for name, (old, new) in PTX_LAUNCHES.items():
        assert old in PTX_LAUNCH
        (here / f"{name}.toml").write_text(PTX_LAUNCH.replace(old, new))
    array = io.BytesIO()
    np.save(array, np.zeros(64, np.uint32))
    (here / "cut.npy").write_bytes(array.getvalue()[:150])
    (here / "bad.sqlite").write_text("hello" * 100)
    shutil.copytree(names["GEMM_DIR"], here / "cut")
    (here / "cut" / "kernel.co").write_bytes(b"x")
    (here / "full").symlink_to("/dev/full")
    monkeypatch.chdir(here)
    return tmp_path


def everything(folder: Path) -> dict[Path, tuple[int, int]]:
    found = {path: path.lstat() for path in folder.rglob("*") if "__pycache__" not in path.parts}
    return {path: (stat.st_mode, stat.st_size) for path, stat in found.items()}


@pytest.mark.parametrize(
    "calls",
    [list(group) for _, group in itertools.groupby(CALLS, lambda call: call[1].split(" ")[0])],
    ids=lambda calls: f"{calls[0][1].split(' ')[0] or 'none'}-{len(calls)}",
)
def test_bad_calls(mlagen, place: Path, names: dict[str, str], calls, monkeypatch) -> None:
    monkeypatch.setenv("MLAGEN_TUNING", str(place / "cache" / "tuning.sqlite"))
    before, built = everything(place), everything(Path(names["ADD"]).parent)
    wrong = []
    for code, line, said in calls:
        done = mlagen(*shlex.split(line.format(**names)))
        left = set(everything(place).items()) - set(before.items())
        if done.code != int(code) or said not in done.err or left:
            wrong.append((line, done.code, done.err[:300], left))
    assert not wrong
    assert everything(Path(names["ADD"]).parent) == built


def test_they_are_many_and_of_all_verbs() -> None:
    assert len(CALLS) >= 220
    assert {line.split(" ")[0] for _, line, _ in CALLS} >= set(VERBS)
