"""`mlagen audit FILE.co`: what it prints, its exit codes, what it refuses."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

pytest.importorskip("ziglang", reason="the assembler wheel (mlagen[amd]) is not installed")
pytest.importorskip("tinygrad", reason="the decoder (mlagen[emulator]) is not installed")

from gfx950_assembler import assemble

from mlagen.audit.gfx950 import RULES
from mlagen.binary import load_code_object

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
GOOD = "global_load_dword v1, v0, s[0:1]\ns_waitcnt vmcnt(0)\nv_mov_b32 v2, v1\ns_endpgm"
# The LDS address comes from memory: whose bytes they are cannot be said.
UNKNOWN = "global_load_dword v1, v0, s[0:1]\ns_waitcnt vmcnt(0)\nds_write_b32 v1, v0\ns_endpgm"
BROKEN = GOOD.replace("s_waitcnt vmcnt(0)", "s_nop 3")


def audit(*arguments):
    command = [sys.executable, "-m", "mlagen", "audit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("objects")
    for name, body in {"good": GOOD, "broken": BROKEN, "unknown": UNKNOWN}.items():
        (folder / f"{name}.co").write_bytes(assemble(body))
    (folder / "nothing.co").write_bytes(b"no object")
    return folder


def test_the_page_has_every_rule():
    rows = PAGE.split("<!-- rules: begin -->")[1].split("<!-- rules: end -->")[0]
    found = re.findall(r"^\| `([\w-]+)` \| [\w, ]+ \| (.+) \|$", rows, re.MULTILINE)
    assert dict(found) == RULES


def test_a_clean_object(files):
    done = audit(files / "good.co")
    assert done.returncode == 0 and "0 errors" in done.stdout


def test_a_finding_shows_both_instructions(files):
    done = audit(files / "broken.co")
    assert done.returncode == 4
    assert "error[missing-wait]" in done.stdout and "needs: vmcnt(0)" in done.stdout
    entry = load_code_object((files / "broken.co").read_bytes()).kernel().address
    assert entry > 0
    assert re.search(rf"> 0x00000 +{entry:#x}  global_load_dword v1", done.stdout)
    assert re.search(rf"> 0x0000c +{entry + 12:#x}  v_mov_b32 v2, v1", done.stdout)
    assert re.search(rf"entry +{entry:#x}", done.stdout)


def test_json_lines_carry_the_schema(files):
    done = audit(files / "broken.co", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["schema"] for line in lines} == {"mlagen.audit.gfx950/3"}
    kernel, finding = lines
    assert kernel["type"] == "kernel" and kernel["errors"] == 1 and kernel["waits"] == []
    assert finding["kernel"] == "k" and finding["pc"] == 12 and finding["other_pc"] == 0
    assert [line["asm"] for line in finding["around"] if line["here"]]
    entry = kernel["entry"]
    assert finding["address"] == entry + 12 and finding["other_address"] == entry
    assert all(line["address"] == entry + line["pc"] for line in finding["around"])
    (place,) = finding["places"]
    assert finding["count"] == 1 and place["address"] == entry + 12 and place["rule"]
    assert kernel["limited"] is False


def test_the_address_is_that_of_the_disassembler(files):
    """The symbol of the kernel says where it starts in the ELF file."""
    data = (files / "good.co").read_bytes()
    symbols = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
    (symbol,) = symbols.get_symbol_by_name("k")
    assert load_code_object(data).kernel().address == symbol["st_value"]


def test_out_of_steps_is_no_pass(files):
    done = audit(files / "good.co", "--limit", "1")
    assert done.returncode == 6
    assert "0 errors" in done.stdout and "not all of it" in done.stdout
    assert "unchecked: limit of 1 steps: LDS" in done.stdout
    assert "not all was covered" in done.stderr and "--limit" in done.stderr
    both = audit(files / "good.co", files / "good.co", "--limit", "1")
    assert both.returncode == 6
    assert "clean" not in both.stdout and "out of steps" in both.stdout


def test_what_is_unchecked_is_not_clean(files):
    """A path that no followed one takes: nothing is wrong with it as far as it is known."""
    done = audit(files / "good.co", files / "unknown.co")
    assert done.returncode == 0
    assert "good.co: clean" in done.stdout
    assert "unknown.co: nothing found, not all covered" in done.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_many_files(files, jobs):
    done = audit(files / "good.co", files / "broken.co", files / "nothing.co", "--jobs", jobs)
    assert done.returncode == 4
    assert "good.co: clean" in done.stdout and "broken.co: 1 missing-wait" in done.stdout
    assert "nothing.co: not a code object" in done.stderr


def test_mutants(files):
    done = audit(files / "good.co", "--mutate")
    assert done.returncode == 0
    assert re.search(r"waits +removed +1 +1", done.stdout)
    assert re.search(r"waits +count \+ 1 +1 +1", done.stdout)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--box", "a=1"), "--box: not an option for a code object"),
        (("--threads", "2000"), "at most 1024"),
        (("--sample", "3"), "add --mutate"),
        (("--jobs", "0"), "at least one process"),
        (("--limit", "-5"), "-5 is not in the range"),
    ],
)
def test_refusals(files, options, told):
    done = audit(files / "good.co", *options)
    assert done.returncode == 2 and told in done.stdout + done.stderr


def test_a_kernel_that_is_not_there(files):
    done = audit(files / "good.co", "--kernel", "other")
    assert done.returncode == 5 and "it has: k" in done.stderr


def test_a_folder_without_code(tmp_path):
    done = audit(tmp_path)
    assert done.returncode == 5 and "neither kernel.co nor kernel.ptx" in done.stderr


def test_bank_conflicts_are_answered(tmp_path):
    """A row of 256 bytes a lane: all lanes of a phase meet in one bank. Rows of 16: none do."""
    for shift, told in ((8, "conflicts in 1 of 1 LDS"), (4, "no conflicts in the 1 LDS")):
        read = "ds_read_b128 v[4:7], v1\ns_waitcnt lgkmcnt(0)\ns_endpgm"
        body = f"v_lshlrev_b32 v1, {shift}, v0\n{read}"
        (tmp_path / "k.co").write_bytes(assemble(body, lds=65536))
        done = audit(tmp_path / "k.co", "--threads", 64)
        assert re.search(rf"^banks +{told}", done.stdout, re.MULTILINE), done.stdout
