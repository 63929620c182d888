"""What a cubin asks for is what the schedule and its manifest say; damaged ones are refused."""

from __future__ import annotations

import importlib.metadata
import random
import re
import struct
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from mlagen.app.build import build_artifact
from mlagen.artifact import SourceLine
from mlagen.codegen.origin import Generated
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import BinaryError, MlagenError, TemplateError
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.nvidia.codegen.agree import check_cubin, check_immediates, named_barriers
from mlagen.targets.nvidia.cubin import read_cubin
from mlagen.targets.nvidia.ptxas import PtxasResult, assemble_ptx, find_ptxas

try:
    find_ptxas("sm_90a")
except MlagenError:
    pytest.skip("no ptxas (pip install 'mlagen[nvidia]')", allow_module_level=True)

KERNEL = "mla_decode_sm90"


@pytest.fixture(scope="module")
def made():
    return build_artifact(KERNEL, {"num_heads": 16}, {})


@pytest.fixture(scope="module")
def facts(made):
    return read_cubin(made.code, made.manifest.symbol)


def test_the_cubin_asks_for_what_the_manifest_says(made, facts):
    manifest = made.manifest
    assert facts.registers == manifest.resources.vgprs
    assert facts.stack_bytes == manifest.resources.scratch_bytes == 0
    sizes = [size for _, size in facts.parameters]
    assert sizes == [argument.size for argument in manifest.args]
    assert facts.static_bytes <= 1024 and facts.barriers == manifest.resources.barriers > 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"registers": 1}, "registers"),
        ({"stack_bytes": 16}, "stack"),
        ({"static_bytes": 2048}, "1024 bytes of shared memory of its own"),
        ({"barriers": 16}, "barriers up to number 15"),
        ({"barriers": 1}, "the cubin has 1 named barriers, the text names"),
        ({"parameters": ()}, "the cubin's parameters have []"),
    ],
)
def test_a_cubin_that_asks_for_something_else_is_refused(made, facts, change, said):
    schedule = schedule_of(load(KERNEL), MlaDecodeConfig(16), {})
    right = PtxasResult(made.code, schedule.symbol, facts.registers, 0, 0, 0, (), facts)
    check_cubin(schedule, right, made.text)
    with pytest.raises(MlagenError, match=re.escape(said)):
        check_cubin(schedule, replace(right, facts=replace(facts, **change)), made.text)


def test_barriers_are_those_that_the_text_names(made, facts):
    """One more than the text names is refused, even where the schedule has handed it out."""
    named = {int(n) for n in re.findall(r"bar(?:rier)?\.(?:sync|arrive)\S* (\d+)", made.text)}
    assert facts.barriers == max(named) + 1
    schedule = schedule_of(load(KERNEL), MlaDecodeConfig(16), {})
    more = replace(facts, barriers=facts.barriers + 1)
    right = PtxasResult(made.code, schedule.symbol, facts.registers, 0, 0, 0, (), more)
    schedule.smem.barriers += 1
    with pytest.raises(MlagenError, match=f"has {facts.barriers + 1} named barriers, the text"):
        check_cubin(schedule, right, made.text)


@pytest.mark.parametrize(
    ("body", "least", "most", "cubin"),
    [
        ("", 0, 0, 0),
        ("bar.sync 0;", 1, 1, 1),
        ("bar.sync 0; bar.arrive 0xb, 64; // bar.sync 12;", 12, 12, 12),
        ("barrier.cta.red.popc.u32 %n, 6, 32, %q;", 7, 7, 7),
        ("@%q barrier.cta.sync.aligned 3, 64;", 4, 4, 4),
        ("barrier.cluster.arrive; barrier.cluster.wait; bar.warp.sync 0xf;", 1, 1, 1),
        ("bar.sync 2; bar.sync %n, 64;", 3, 16, 16),
        ("mov.u32 %n, 5; bar.sync 2; bar.sync %n, 64;", 3, 16, 6),  # a constant that ptxas sees
        ("bar.sync 1; ret; bar.sync 7;", 8, 8, 2),  # refused: the last one is out of reach
    ],
)
def test_ptxas_counts_barriers_as_we_do(body, least, most, cubin):
    text = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 p, .param .u32 n) {\n"
        ".reg .u64 %a; .reg .u32 %n; .reg .pred %q;\n"
        "ld.param.u64 %a, [p]; ld.param.u32 %n, [n]; setp.eq.u32 %q, %n, 0;\n"
        f"{body}\nst.global.u32 [%a], %n;\nret;\n}}\n"
    )
    assert named_barriers(text) == (least, most)
    facts = assemble_ptx(text, file_name="k.ptx", source_lines={}, schedule_file="k.py").facts
    assert facts is not None and facts.barriers == cubin
    assert (least <= cubin <= most) == ("ret" not in body)


def test_damaged_cubins_are_refused_or_read(made):
    """Cut anywhere, and with random bytes: an error of ours or an answer, and soon."""
    symbol, code = made.manifest.symbol, made.code
    with pytest.raises(BinaryError, match="no ELF file of CUDA"):
        read_cubin(b"", symbol)
    with pytest.raises(BinaryError, match="says nothing of a kernel nosuch"):
        read_cubin(code, "nosuch")
    (table,) = struct.unpack_from("<Q", code, 40)
    header = table + 64 * struct.unpack_from("<H", code, 62)[0]  # of the sections' names
    start, size = struct.unpack_from("<QQ", code, header + 24)
    endless = code[:start] + b"x" * size + code[start + size :]
    with pytest.raises(BinaryError, match="the cubin is damaged"):
        read_cubin(endless, symbol)
    for number in range(struct.unpack_from("<H", code, 60)[0]):
        far = bytearray(code)  # a section without bytes in the file, which begins nowhere
        struct.pack_into("<I", far, table + 64 * number + 4, 8)
        struct.pack_into("<Q", far, table + 64 * number + 24, (1 << 64) - 8)
        with suppress(BinaryError):
            read_cubin(bytes(far), symbol)
    rng = random.Random(3)
    for _ in range(200):
        broken = bytearray(code[: rng.choice((len(code), rng.randrange(len(code))))])
        for _ in range(rng.randrange(1, 40)):
            if broken:
                broken[rng.randrange(len(broken))] = rng.randrange(256)
        with suppress(BinaryError):
            read_cubin(bytes(broken), symbol)


def nvdisasm() -> Path | None:
    try:
        wheel = importlib.metadata.distribution("nvidia-cuda-nvdisasm")
    except importlib.metadata.PackageNotFoundError:
        return None
    files = [file for file in wheel.files or () if file.name == "nvdisasm"]
    return Path(str(wheel.locate_file(files[0]))) if files else None


@pytest.mark.skipif(nvdisasm() is None, reason="no nvdisasm (pip install 'mlagen[dev]')")
def test_nvdisasm_reads_the_same(made, facts, tmp_path):
    """Attributes have the numbers that we take them for, and the machine code has no barrier and no
    register count beyond the text's."""
    (tmp_path / "k.cubin").write_bytes(made.code)
    tool = nvdisasm()
    assert tool is not None
    done = subprocess.run([tool, "k.cubin"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = {
        name: int(number, 16)
        for name, number in re.findall(
            r"nvinfo : EIATTR_(\w+)\n(?:.*\n){0,4}?.*\.byte\s+0x\w\w, 0x(\w\w)", done.stdout
        )
    }
    for name, number in (("REGCOUNT", 0x2F), ("FRAME_SIZE", 0x11), ("KPARAM_INFO", 0x17),
                         ("NUM_BARRIERS", 0x4C), ("CBANK_PARAM_SIZE", 0x19)):  # fmt: skip
        assert numbers[name] == number
    used = {int(number, 16) for number in re.findall(r"BAR\.\w+\S* 0x(\w+)", done.stdout)}
    assert max(used) + 1 == facts.barriers
    asked = set(re.findall(r"setmaxnreg\.\S+ (\d+)", made.text))
    given = {str(int(n, 16)) for n in re.findall(r"USETMAXREG\S* (?:UP\d, )?0x(\w+)", done.stdout)}
    assert asked == given


def test_a_number_beyond_its_limit_is_refused_at_its_lines():
    text = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n"
        "bar.sync 1, 64;\nbar.sync 16, 64;\nret;\n}\n"
    )
    line = SourceLine(6, "loop", "", "", "family/wait.ptx.j2", 3, 77, "wait(i)", "")
    with pytest.raises(TemplateError) as caught:
        check_immediates(Generated(text, "k.ptx", {6: line}, "mine.py"))
    said = str(caught.value)
    assert "k.ptx:6: barrier 16; it is 0 to 15" in said
    assert "template family/wait.ptx.j2:3, schedule mine.py:77" in said
    check_immediates(Generated(text.replace("16", "15"), "k.ptx", {}, "mine.py"))
