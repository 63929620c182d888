"""Every opcode of AMD's machine-readable ISA that is no vector ALU instruction, and all that write
EXEC: the audit and the emulator know what it does, or name it. None is harmless unseen.

What each does is said here anew, after LLVM's SIInsertWaitcnts and the CDNA4 ISA guide, and held
against what the checkers make of the instruction between others.
"""

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

cdna = pytest.importorskip("tinygrad.runtime.autogen.amd.cdna.ins")
ziglang = pytest.importorskip("ziglang")

from gfx950_assembler import assemble  # noqa: E402
from tinygrad.renderer.amd.dsl import FixedBitField  # noqa: E402

from mlagen.audit.gfx950 import audit_kernel  # noqa: E402
from mlagen.audit.gfx950.lds.sites import read_site  # noqa: E402
from mlagen.binary import load_code_object  # noqa: E402
from mlagen.binary.effects import effects  # noqa: E402
from mlagen.binary.operand import EXEC  # noqa: E402
from mlagen.emulator.gfx950 import layout as y  # noqa: E402
from mlagen.emulator.gfx950.translate import gaps, translate  # noqa: E402
from mlagen.errors import UnsupportedError  # noqa: E402

FORMS = ("SOPP", "SOPK", "SOPK_LIT", "SOP1", "SOP2", "SOPC", "SMEM", "DS", "MUBUF", "MTBUF",
         "GLOBAL", "FLAT", "SCRATCH")  # fmt: skip
FRAME = """
  global_load_dword v4, v[8:9], off
  ds_read_b32 v5, v10
  s_waitcnt vmcnt(1) lgkmcnt(1)
  v_mov_b32 v60, v4
  v_mov_b32 v61, v5
  s_waitcnt vmcnt(0) lgkmcnt(0)
  ds_read_b64_tr_b16 v[6:7], v10
  s_waitcnt vmcnt(0) lgkmcnt(0)
  s_endpgm
"""
FIELDS = {"vdst": 40, "vdata": 40, "addr": 8, "vaddr": 8, "data": 20, "data0": 20, "data1": 24,
          "srsrc": 2, "soffset": 128, "saddr": 0x7F, "sdata": 20, "sdst": 20, "ssrc0": 22,
          "ssrc1": 24, "offen": 1, "src0": 256 + 20, "vsrc1": 21}  # fmt: skip

IDLE = {  # nothing that a checker looks at (CDNA4 ISA guide, SOPP)
    "s_nop", "s_sleep", "s_wakeup", "s_setprio", "s_icache_inv", "s_incperflevel", "s_decperflevel",
    "s_ttracedata", "s_set_gpr_idx_off",
}  # fmt: skip
CONTROL = re.compile(r"s_(endpgm\w*|branch|cbranch_(scc|vccn?z|execn?z)[01]?|barrier|waitcnt)")
# What a checker cannot follow, and so has to name.
NAMED = re.compile(
    r"s_(setkill|sethalt|sendmsghalt|trap|cbranch_(cdbg\w+|join|g_fork|i_fork)|setvskip|rfe\w*"
    r"|set_gpr_idx_(on|idx|mode)|set_valu_coexec_mode|movrel\w+|setreg\w+|setpc_b64|swappc_b64"
    r"|call_b64|store_\w+|\w+_store_\w+|atomic_\w+|buffer_atomic_\w+)|ds_gws_\w+|flat_\w+"
    r"|ds_(append|consume|\w+_addtid_b32)"
)


def counted(form, name):
    """The counter of an operation (LLVM, SIInsertWaitcnts): vm, lds (in order), or unordered."""
    if form in ("MUBUF", "MTBUF", "GLOBAL", "FLAT", "SCRATCH"):
        return "vm"
    if form == "DS":
        return "lds"
    return "unordered" if form == "SMEM" or name.startswith("s_sendmsg") else ""


def encoded(form, op, **fields):
    """An instruction of a format, bit by bit as the tables have its fields."""
    raw = 0
    for name, spec in form._fields:
        value = {**FIELDS, **fields}.get(name, 0)
        value = spec.default if isinstance(spec, FixedBitField) else value
        raw |= ((op.value if name == "op" else value) & spec.mask) << spec.lo
    return raw.to_bytes(form._base_size, "little")


def opcodes(*forms):
    for form in forms:
        made = getattr(cdna, form)
        for op in sorted(dict(made._fields)["op"].allowed, key=lambda op: op.value):
            yield form, op.name.lower().removesuffix("_e32").removesuffix("_e64"), made, op


@cache
def frame():
    (kernel,) = load_code_object(assemble(FRAME, vgprs=64, lds=65536)).kernels.values()
    return kernel, [kernel.code[i.offset : i.offset + i.size] for i in kernel.instructions]


def kernel_of(*parts):
    return replace(frame()[0], code=b"".join(parts))


TYPED = [
    f"tbuffer_{access}_format_{half}{parts}"
    for access in ("load", "store")
    for half in ("", "d16_")
    for parts in ("x", "xy", "xyz", "xyzw")
]


@pytest.mark.parametrize("name", TYPED)
def test_typed_buffer_accesses_count_in_vmcnt_and_fill_what_they_say(name):
    """tinygrad's decoder knows none of them. The emulator refuses them by name."""
    count = len(name.rpartition("_")[2])
    count = (count + 1) // 2 if "d16" in name else count
    last = 20 + count - 1
    data = "v20" if count == 1 else f"v[20:{last}]"
    text = f"  {name} {data}, v8, s[8:11], 0 format:22 offen\n"
    after = FRAME.replace("  ds_read_b32 v5, v10\n", text).replace(" lgkmcnt(1)", "")
    kernel = load_code_object(
        assemble(after.replace("  v_mov_b32 v61, v5\n", f"  v_mov_b32 v61, v{last}\n"), vgprs=64)
    ).kernel()
    report = audit_kernel(kernel)
    assert not report.unchecked
    told = {p.resource for f in report.findings for p in f.places if f.rule == "missing-wait"}
    assert told == ({f"v{last}"} if "_load_" in name else set())
    with pytest.raises(UnsupportedError, match=name):
        translate(kernel)


def names_of_llvm():
    """All mnemonics of LLVM's AMDGPU assembler: its table, each name behind its length, as the
    binary has it. Those of gfx950 are the ones that it does not call unsupported there."""
    data = (Path(ziglang.__file__).parent / "zig").read_bytes()
    at = re.search(rb"\x11buffer_atomic_add[\x01-\x40]", data).start()
    names = []
    while re.fullmatch(rb"[a-z0-9_]+", name := data[at + 1 : at + 1 + data[at]]):
        names.append(name.decode())
        at += 1 + len(name)
    return names


def supported(names, folder):
    """The names of which the assembler says no more than that their operands are missing."""
    text = folder / "names.s"
    text.write_text("".join(f"{name}\n" for name in names))
    command = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa"]
    command += ["-mcpu=gfx950", "-ferror-limit=0", "-c", str(text), "-o", str(folder / "names.o")]
    done = subprocess.run(command, capture_output=True, text=True)
    refused = re.findall(r"names\.s:(\d+):\d+: error: .*not supported on this GPU", done.stderr)
    return [name for line, name in enumerate(names, 1) if str(line) not in set(refused)]


def test_llvm_has_no_instruction_beyond_the_tables(tmp_path):
    names = names_of_llvm()
    assert len(names) > 2000
    here = [name for name in supported(names, tmp_path) if not name.startswith("v_")]
    assert len(here) > 500
    known = {name for _, name, *_ in opcodes(*FORMS)} | set(TYPED) | set(SYNC)
    assert [name for name in here if name not in known] == []


SYNC = ["ds_gws_barrier", "ds_gws_init", "ds_gws_sema_br"]


@pytest.mark.parametrize("text", ["ds_gws_barrier v6", "ds_gws_init v8", "ds_gws_sema_br v8"])
def test_global_sync_that_the_decoder_leaves_out_is_named(text):
    name = text.split()[0]
    kernel = load_code_object(assemble(f"  {text} offset:3 gds\n  s_endpgm\n")).kernel()
    first = kernel.instructions[0]
    assert (first.mnemonic, first.operands[0][1].index) == (name, int(text[-1]))
    assert any(name in line for line in audit_kernel(kernel).unchecked)
    with pytest.raises(UnsupportedError, match=name):
        translate(kernel)


def test_the_audit_counts_or_names_every_opcode():
    """Between two loads and waits that leave one operation of each counter: what an operation
    counts in is seen in which of the two the wait covers."""
    _, parts = frame()
    wrong = []
    for form, name, made, op in opcodes(*FORMS):
        kernel = kernel_of(*parts[:2], encoded(made, op), *parts[2:6], parts[-1])
        report = audit_kernel(kernel)
        early = {p.resource for f in report.findings for p in f.places if f.rule == "missing-wait"}
        named = any(name in line or "indirect jump" in line for line in report.unchecked)
        named |= any("(s_set_gpr_idx_on)" in line for line in report.unchecked)
        if CONTROL.fullmatch(name) or NAMED.fullmatch(name):
            if bool(NAMED.fullmatch(name)) != named:
                wrong.append((name, "named" if named else "not named"))
            continue
        counter = counted(form, name)
        expected = {"vm": {"v5"}, "lds": {"v4"}}.get(counter, {"v4", "v5"})
        addresses = counter in ("vm", "lds")  # LDS addresses that are not known are named, too
        if early != expected or (named and not addresses):
            wrong.append((form, name, early, report.unchecked))
        site = kernel.instructions[2]
        if not counter and name not in IDLE and not effects(site, 64).writes:
            wrong.append((name, "writes nothing"))
    assert not wrong


def test_the_emulator_executes_or_refuses_every_opcode():
    _, parts = frame()
    queues = {"vm": y.Q_VM, "lds": y.Q_LDS, "unordered": y.Q_SMEM}
    wrong, executed = [], 0
    for form, name, made, op in opcodes(*FORMS):
        kernel = kernel_of(encoded(made, op), parts[-1])
        if any(gaps(kernel)):
            continue
        executed += 1
        row = translate(kernel).rows[0]
        if NAMED.fullmatch(name):
            wrong.append((name, "is executed"))
        if row[y.P_CLASS] == y.X_NOP and name not in IDLE:
            wrong.append((name, "does nothing"))
        if row[y.P_QUEUE] != queues.get(counted(form, name), -1):
            wrong.append((name, row[y.P_QUEUE]))
    assert not wrong and executed > 200


def test_results_of_every_load_need_its_wait():
    _, parts = frame()
    wait, end = parts[7], parts[8]
    wrong = []
    for form, name, made, op in opcodes("SMEM", "DS", "MUBUF", "GLOBAL", "FLAT", "SCRATCH"):
        if "_lds_" in name or (NAMED.fullmatch(name) and form != "FLAT"):
            continue
        loads = re.search(r"load|read|rtn|permute|swizzle|time", name) or "atomic" in name
        if not loads:
            continue
        use = encoded(cdna.VOP1, cdna.VOP1Op.V_MOV_B32_E32, vdst=60, src0=256 + 40)
        if form == "SMEM":
            use = encoded(cdna.SOP1, cdna.SOP1Op.S_MOV_B32, sdst=40, ssrc0=20)
        word = encoded(made, op, sc0=1)
        for between, expected in (((), True), ((wait,), False)):
            report = audit_kernel(kernel_of(word, *between, use, end))
            told = any(finding.rule == "missing-wait" for finding in report.findings)
            if told != expected and not name.startswith("s_atc"):
                wrong.append((name, told))
    assert not wrong


def exec_writers():
    """Scalar instructions with a pair of registers, or one, as the result, into EXEC, and those
    that write it whatever they name; compares of lanes that do."""
    for _, name, made, op in opcodes("SOP1", "SOP2"):
        if NAMED.fullmatch(name):
            continue
        if "exec" in name:
            yield name, encoded(made, op)
        yield f"{name} exec", encoded(made, op, sdst=EXEC)
    for _, name, made, op in opcodes("SOPK"):
        if name in ("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32", "s_getreg_b32"):
            yield f"{name} exec", encoded(made, op, sdst=EXEC, simm16=5)
    for _, name, made, op in opcodes("VOPC", "VOP3"):
        if name.startswith("v_cmpx"):
            yield name, encoded(made, op, vdst=20, src1=256 + 21)


def test_every_writer_of_exec_is_seen_at_a_transposing_read():
    """What is left of EXEC is not known to be all ones, but by lanes that are added to all."""
    _, parts = frame()
    unseen = []
    for name, word in exec_writers():
        report = audit_kernel(kernel_of(word, *parts[6:]))
        if not any(finding.rule == "partial-exec" for finding in report.findings):
            unseen.append(name)
    assert set(unseen) == {
        f"s_{name}_saveexec_b64{exec}" for name in WHOLE for exec in ("", " exec")
    }


WHOLE = ("or", "orn1", "andn2", "nor")  # of all lanes: all, or none


def test_sites_of_lds_are_as_wide_as_their_registers():
    _, parts = frame()
    wrong = []
    for _, name, made, op in opcodes("DS"):
        if NAMED.fullmatch(name) or re.search("permute|swizzle|nop", name):
            continue
        ins = kernel_of(encoded(made, op), parts[-1]).instructions[0]
        site = read_site(ins, 64)
        small = re.search(r"_[biu](8|16)(_d16)?(_hi)?$", name) if "_tr_" not in name else None
        register = ins.operand("vdst") or ins.operand("data0")
        bytes_ = int(small.group(1)) // 8 if small else 4 * register.count
        if re.search("condxchg32", name):
            bytes_ = 8
        if re.search("cmpst|mskor|wrxchg|wrap|(add|sub|inc|dec|min|max|and|or|xor)_", name):
            bytes_ = 8 if re.search(r"64$", name) else 4
        if re.search("wrxchg2|read2|write2", name):
            bytes_ = 2 * (8 if name.endswith("64") else 4)
        if site is None or sum(width for _, width in site.parts) != bytes_:
            wrong.append((name, site and site.parts, bytes_))
    assert not wrong
