"""`mlagen build`: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlagen import env
from mlagen.artifact import read_artifact
from mlagen.extras import install
from mlagen.targets.gfx950 import clang

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ("mha_prefill_v2", "--set", "num_heads=8", "--set", "num_kv_heads=2")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_build_writes_three_files_and_says_what_it_takes(mlagen, tmp_path: Path) -> None:
    done = mlagen("build", *KERNEL, "-o", tmp_path / "k")
    assert (done.code, done.err) == (0, "")
    assert sorted(files_in(tmp_path / "k")) == ["kernel.co", "kernel.s", "manifest.json"]
    manifest = read_artifact(tmp_path / "k").manifest
    facts = dict(line.split(None, 1) for line in done.out.splitlines())
    assert facts["kernel"] == "mha_prefill_v2 for gfx950 (schedules/mha_prefill_v2.py)"
    assert facts["proof"].startswith("proved: ")
    assert facts["registers"].startswith(f"{manifest.resources.vgprs} vector + ")
    assert "scratch 0 B, spills 0 vector + 0 scalar" in facts["memory"]
    assert facts["code"] == str(tmp_path / "k" / "kernel.co")


def test_without_a_folder_the_artifact_goes_into_the_store(mlagen, tmp_path: Path) -> None:
    assert mlagen("list", "--built").out == "0 artifacts; mlagen cache has their size\n"
    built = json.loads(mlagen("build", *KERNEL, "--json").out)
    assert built["schema"] == "mlagen.build/1"
    assert built["directory"].startswith(str(tmp_path / "cache"))
    assert read_artifact(built["directory"]).key == built["key"]
    assert built["proof"]["status"] == "proved"
    (listed,) = json.loads(mlagen("list", "--built", "--json").out)["artifacts"]
    assert (listed["key"], listed["directory"]) == (built["key"], built["directory"])


def test_two_builds_in_different_places_are_the_same_bytes(tmp_path: Path) -> None:
    found = []
    for number, name in enumerate(("here", "there/deeper")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-m", "mlagen", "build", *KERNEL, "-o", "k"],
            cwd=folder,
            env={**os.environ, "PYTHONHASHSEED": str(number), "TMPDIR": str(folder)},
            check=True,
            capture_output=True,
        )
        found.append(files_in(folder))
    assert len(found[0]) == 3
    assert found[0] == found[1]
    for data in found[0].values():
        assert os.fsencode(tmp_path) not in data


def test_a_build_needs_neither_emulator_nor_tables(tmp_path: Path) -> None:
    code = (
        "import sys; from mlagen.cli.main import run; "
        f"assert run(['build', *{KERNEL!r}, '-o', {str(tmp_path / 'k')!r}]) == 0; "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "jinja2" in loaded
    assert not loaded & {"rich", "numba", "llvmlite", "tinygrad", "mlagen.emulator"}


def test_a_schedule_file_of_ones_own_is_built(mlagen, tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    shutil.copy(ROOT / "schedules" / "mha_prefill_v2.py", own)
    done = mlagen("build", own, *KERNEL[1:], "-o", tmp_path / "k")
    assert (done.code, done.err) == (0, "")
    assert read_artifact(tmp_path / "k").manifest.schedule_file.endswith("mine.py")


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["mha_prefill_v3"], 2, ["mha_prefill_v3", "did you mean 'mha_prefill_v2'?"]),
        (["nowhere.py"], 5, ["nowhere.py"]),
        ([*KERNEL, "--set", "num_head=8"], 2, ["'num_head'", "did you mean num_heads?", "depth"]),
        ([*KERNEL, "--knob", "pv_patern=even"], 2, ["'pv_patern'", "'pv_pattern'", "qk_pattern"]),
        ([*KERNEL, "--knob", "k_slots=9"], 2, ["k_slots", "'9'", "choices: 4"]),
        ([*KERNEL, "--target", "gfx94"], 2, ["'gfx94'", "gfx950"]),
        ([*KERNEL, "--set", "depth=96"], 2, ["depth=96", "64", "128"]),
        ([*KERNEL, "--set", "depth=wide"], 2, ["depth='wide' is not an integer"]),
        ([*KERNEL, "--set", "dtype=fp8_e5m2"], 2, ["fp8_e5m2", "fp8_e4m3"]),
        ([*KERNEL, "--set", "depth"], 2, ["--set 'depth' is not NAME=VALUE"]),
        ([*KERNEL, "--set", "num_heads=4"], 2, ["--set num_heads is given twice"]),
        (["mha_prefill_v2", "--set", "num_heads=8"], 2, ["num_kv_heads"]),
        (["mha_prefill_v2", "--set", "num_heads=8", "--set", "num_kv_heads=3"], 2, ["multiple"]),
        ([*KERNEL, "--templates", "nowhere"], 5, ["no template folder nowhere"]),
        ([*KERNEL, "--templates", str(ROOT / "schedules")], 5, ["has no template for gfx950"]),
        ([*KERNEL, "--fast"], 2, ["--fast"]),
        ([], 2, ["KERNEL"]),
    ],
)
def test_bad_input_is_one_clear_error(
    mlagen, tmp_path: Path, arguments: list[str], code: int, parts: list[str]
) -> None:
    done = mlagen("build", *arguments, "-o", tmp_path / "k")
    assert done.code == code
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert done.err.count("error:") == 1
    for part in parts:
        assert part in done.err
    assert list(tmp_path.iterdir()) == []


def edited(folder: Path, name: str, old: str, new: str) -> Path:
    """A template folder in which one shipped template is changed."""
    shipped = ROOT / "templates" / "gfx950" / name
    text = shipped.read_text()
    assert old in text
    path = folder / "gfx950" / name
    path.parent.mkdir(parents=True)
    path.write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("{{ arguments.", "{{ argument.", ["prefill/prescale.s.j2:7", "'argument' is undefined"]),
        ("v_mul_f32", "v_mull_f32", ["prefill/prescale.s.j2:7", "v_mull_f32"]),
        ("{% endfor %}", "", ["prefill/prescale.s.j2"]),
        ("0xffff0000,", "exec,", ["the assembler refuses", "prefill/prescale.s.j2:6", "v_and_b32"]),
    ],
    ids=["undefined name", "unknown mnemonic", "syntax", "refused by the assembler"],
)
def test_an_error_in_a_template_is_told_at_its_line(
    mlagen, tmp_path: Path, old: str, new: str, parts: list[str]
) -> None:
    folder = edited(tmp_path / "templates", "prefill/prescale.s.j2", old, new)
    done = mlagen("build", *KERNEL, "--templates", folder, "-o", tmp_path / "k")
    assert done.code == 2
    assert done.out == ""
    for part in parts:
        assert part in done.err
    assert not (tmp_path / "k").exists()


def test_an_edited_template_changes_the_kernel(mlagen, tmp_path: Path) -> None:
    folder = edited(
        tmp_path / "templates",
        "prefill/prescale.s.j2",
        "v_mul_f32 {{ low }}",
        "s_nop 0\nv_mul_f32 {{ low }}",
    )
    assert mlagen("build", *KERNEL, "-o", tmp_path / "a").code == 0
    assert mlagen("build", *KERNEL, "--templates", folder, "-o", tmp_path / "b").code == 0
    first, second = read_artifact(tmp_path / "a"), read_artifact(tmp_path / "b")
    assert first.key != second.key
    assert second.text.count("s_nop 0") > first.text.count("s_nop 0")


def test_no_toolchain_is_told_with_what_to_install(
    mlagen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv(env.ROCM_PATH, str(tmp_path / "no-rocm"))
    monkeypatch.delenv(env.CLANG, raising=False)
    monkeypatch.delenv(env.LLD, raising=False)
    find = clang.importlib.util.find_spec
    monkeypatch.setattr(
        clang.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "ziglang" else find(name, *rest),
    )
    clang.find_tools.cache_clear()
    try:
        done = mlagen("build", *KERNEL, "-o", tmp_path / "k")
        assert done.code == 5
        assert "no assembler for gfx950" in done.err
        assert install("amd") in done.err
        assert not (tmp_path / "k").exists()
        report = json.loads(mlagen("doctor", "--json").out)
        assert "gfx950" not in report["builds"]
        assert any(install("amd") in line for line in report["advice"])
    finally:
        clang.find_tools.cache_clear()
