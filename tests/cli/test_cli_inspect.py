"""`mlagen inspect` and `mlagen diff` on artifacts, binaries and everything else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")
sys.path.insert(0, str(Path(__file__).parent.parent / "binary"))

from mlagen.artifact import write_artifact


@pytest.fixture(scope="module")
def folder(add_artifact, tmp_path_factory):
    return write_artifact(add_artifact, tmp_path_factory.mktemp("add") / "k")


@pytest.fixture(scope="module")
def two_kernels(tmp_path_factory):
    from gfx950_assembler import assemble

    second = ".end_amdhsa_kernel\n.globl other\n.amdhsa_kernel other\n"
    second += "  .amdhsa_next_free_vgpr 8\n  .amdhsa_next_free_sgpr 16\n  .amdhsa_accum_offset 8"
    body = "s_endpgm\n.globl other\n.type other,@function\nother:\n  s_nop 0\n  s_endpgm"
    file = tmp_path_factory.mktemp("two") / "two.co"
    file.write_bytes(assemble(body, extra=second))
    return file


def test_text(mlagen, folder):
    done = mlagen("inspect", folder)
    assert (done.code, done.err) == (0, "")
    for part in ("kernel", "add for gfx950", "clusters", "registers", "waits", "vmcnt(0)"):
        assert part in done.out


def test_any_file_of_the_artifact_will_do(mlagen, folder):
    told = [mlagen("inspect", folder / name, "--json") for name in ("kernel.co", "kernel.s")]
    assert [done.code for done in told] == [0, 0]
    first, second = (json.loads(done.out) for done in told)
    assert first.pop("path") != second.pop("path")
    assert first == second


def test_json(mlagen, folder):
    report = json.loads(mlagen("inspect", folder, "--json").out)
    assert report["schema"] == "mlagen.inspect/1"
    assert report["origin"] == "artifact"
    assert sum(len(c["lines"]) for c in report["clusters"]) == 11
    (use,) = [x for c in report["clusters"] for x in c["lines"] if x["operation"] == "use(x, i)"]
    assert (use["template"], use["template_line"], use["schedule_line"]) == ("add/use.s.j2", 5, 27)


def test_html(mlagen, folder, tmp_path):
    page = tmp_path / "deep" / "page.html"
    done = mlagen("inspect", folder, "--html", page)
    assert done.code == 0 and str(page) in done.out
    assert page.read_text().lstrip().startswith("<!doctype html>")
    done = mlagen("diff", folder, folder / "kernel.co", "--html", page)
    assert done.code == 0
    assert "Everything that is told here is equal." in page.read_text()


def test_diff(mlagen, folder, make_artifact, tmp_path):
    changed = make_artifact(knobs={"pattern": "odd", "priority": 1, "ratio": 0.5})
    other = write_artifact(changed, tmp_path / "other")
    done = mlagen("diff", folder, other)
    assert (done.code, done.err) == (0, "")
    assert "knob pattern" in done.out and "even" in done.out and "odd" in done.out
    assert "the same instructions" in done.out
    report = json.loads(mlagen("diff", folder, other, "--json").out)
    assert report["schema"] == "mlagen.diff/1"
    assert not report["equal"] and report["same_code"]
    assert report["registers"]["equal"] and report["LDS_accesses"]["equal"]
    different = [row for row in report["identity"]["rows"] if not row["equal"]]
    assert different == [{"name": "knob pattern", "a": "even", "b": "odd", "equal": False}]


def test_equal_is_said(mlagen, folder):
    done = mlagen("diff", folder, folder)
    assert done.code == 0
    assert "everything that is told here" in done.out


def test_kernels_are_named_where_there_are_several(mlagen, two_kernels, folder):
    done = mlagen("inspect", two_kernels)
    assert done.code == 5 and "has 2 kernels; name one of: k, other" in done.err
    assert mlagen("inspect", two_kernels, "--kernel", "other").code == 0
    done = mlagen("inspect", two_kernels, "--kernel", "third")
    assert done.code == 5 and "no kernel third" in done.err and "k, other" in done.err
    done = mlagen("inspect", folder, "--kernel", "third")
    assert done.code == 2 and "has no kernel third" in done.err
    done = mlagen("diff", two_kernels, two_kernels, "--kernel-a", "k", "--kernel-b", "other")
    assert done.code == 0 and "scalar" in done.out


def damaged(kind: str, folder: Path, tmp_path: Path) -> Path:
    code = bytearray((folder / "kernel.co").read_bytes())
    file = tmp_path / "foreign.co"
    if kind == "text":
        file.write_text("this is no object")
    elif kind == "cuda":
        code[18:20] = (190).to_bytes(2, "little")  # e_machine: EM_CUDA
        file.write_bytes(code)
    elif kind == "gfx942":
        code[48] = 0x4C  # e_flags: EF_AMDGPU_MACH_AMDGCN_GFX942
        file.write_bytes(code)
    elif kind == "truncated":
        file.write_bytes(code[: len(code) // 2])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "garbage":
        file.write_bytes(code[:64] + bytes(255 - b for b in code[64:]))
    elif kind == "cubin":
        file = tmp_path / "alone.cubin"
        file.write_bytes(code)
    elif kind == "folder":
        file = tmp_path / "nothing here"
        file.mkdir()
    elif kind == "schema":
        file = tmp_path / "newer"
        file.mkdir()
        for name in ("kernel.co", "kernel.s", "manifest.json"):
            (file / name).write_bytes((folder / name).read_bytes())
        text = (file / "manifest.json").read_text()
        assert "mlagen.manifest/7" in text
        (file / "manifest.json").write_text(text.replace("mlagen.manifest/7", "mlagen.manifest/99"))
    else:
        file = tmp_path / "absent"
    return file


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text", "does not start with the ELF magic"),
        ("cuda", "not an AMDGPU code object: the ELF machine is EM_CUDA"),
        ("gfx942", "for another target: EF_AMDGPU_MACH is 0x4c"),
        ("truncated", "truncated"),
        ("empty", "does not start with the ELF magic"),
        ("garbage", "foreign.co: "),
        ("cubin", "a .cubin alone tells no roles or clusters"),
        ("folder", "has no manifest.json"),
        ("schema", "schema 'mlagen.manifest/99'; this version reads 'mlagen.manifest/7'"),
        ("absent", "nothing at "),
    ],
)
def test_bad_input_is_one_clear_error(mlagen, folder, tmp_path, kind, said):
    file = damaged(kind, folder, tmp_path)
    for done in (mlagen("inspect", file), mlagen("diff", folder, file)):
        assert done.code == 5
        assert done.err.startswith("error: ") and said in done.err
        assert done.err.count("error: ") == 1
        assert done.out == ""


def test_wrong_usage(mlagen, folder):
    assert mlagen("inspect").code == 2
    assert mlagen("diff", folder).code == 2
