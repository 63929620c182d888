"""Containers, descriptors, metadata and line tables; foreign and damaged files."""

import io

import pytest
from elftools.elf.elffile import ELFFile
from gfx950_assembler import _FRAME, assemble, link, run_zig

from mlagen.binary import load_code_object
from mlagen.binary.elf import read_elf
from mlagen.errors import BinaryError

_BODY = "  s_nop 3\n  v_mov_b32 v1, v0\n  s_endpgm\n"
_METADATA = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .kernarg_segment_size: 24
    .group_segment_fixed_size: 2048
    .private_segment_fixed_size: 0
    .kernarg_segment_align: 8
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 40
    .agpr_count: 3
    .max_flat_workgroup_size: 256
    .args:
      - {.name: q, .offset: 0, .size: 8, .value_kind: global_buffer}
      - {.name: n, .offset: 8, .size: 4, .value_kind: by_value}
...
.end_amdgpu_metadata
"""


def test_descriptor_fields():
    code = assemble(_BODY, vgprs=40, accum=24, lds=2048, kernarg=24, denormals=0)
    kernel = load_code_object(code).kernel()
    descriptor = kernel.descriptor
    assert (descriptor.vgprs, descriptor.accum_offset) == (40, 24)
    assert (descriptor.lds_bytes, descriptor.scratch_bytes) == (2048, 0)
    assert descriptor.kernarg_bytes == kernel.kernarg_bytes == 24
    assert descriptor.user_sgprs == (("kernarg_segment_ptr", 2),)
    assert descriptor.workgroup_ids == (True, False, False)
    assert (descriptor.denormals_f32, descriptor.denormals_f16_64) == (0, 3)
    assert not descriptor.ieee and not descriptor.dx10_clamp


def test_metadata_arguments():
    code = assemble(_BODY + _METADATA, lds=2048, kernarg=24)
    info = load_code_object(code).kernel("k").info
    assert info is not None
    assert [(a.name, a.offset, a.size) for a in info.arguments] == [("q", 0, 8), ("n", 8, 4)]
    assert (info.kernarg_bytes, info.agprs, info.max_workgroup_threads) == (24, 3, 256)


def test_line_table_maps_instructions_to_source_lines():
    loaded = load_code_object(assemble(_BODY))
    kernel = loaded.kernel()
    lines = [loaded.line_of(kernel, ins.offset) for ins in kernel.instructions]
    assert lines == [7, 8, 9]  # the frame's six lines come first


def test_instructions_are_those_reachable_from_the_entry():
    body = "  s_branch .Lon\n  .long 0xffffffff\n.Lon:\n  s_nop 0\n  s_endpgm\n  .long 0xffffffff\n"
    kernel = load_code_object(assemble(body)).kernel()
    assert [str(ins) for ins in kernel.instructions] == ["s_branch 1", "s_nop 0", "s_endpgm"]
    assert kernel.instructions[0].branch_target == 8


def test_reachable_garbage_is_named_with_its_address():
    kernel = load_code_object(assemble("  s_nop 0\n  .long 0xffffffff\n  s_endpgm\n")).kernel()
    with pytest.raises(BinaryError, match=r"kernel k, byte 0x4: .*0xffffffff"):
        _ = kernel.instructions


def test_running_off_the_end_is_refused():
    kernel = load_code_object(assemble("  s_nop 0\n")).kernel()
    with pytest.raises(BinaryError, match="outside its 4 bytes of code"):
        _ = kernel.instructions


def test_unknown_kernel_name_lists_the_known_ones():
    with pytest.raises(BinaryError) as caught:
        load_code_object(assemble(_BODY)).kernel("other")
    assert caught.value.hint == "it has: k"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ELF magic"),
        (b"hello world, this is text", "ELF magic"),
        (b"\x7fELF", "truncated"),
    ],
)
def test_files_that_are_no_code_objects(data, message):
    with pytest.raises(BinaryError, match=message):
        load_code_object(data)


def test_every_truncation_is_a_binary_error():
    code = assemble(_BODY)
    for size in [*range(0, 400, 7), *range(400, len(code), 61)]:
        with pytest.raises(BinaryError):
            load_code_object(code[:size])


def test_other_machines_and_targets_are_named():
    code = bytearray(assemble(_BODY))
    gfx942 = code.copy()
    gfx942[48] = 0x4C
    with pytest.raises(BinaryError, match="another target"):
        load_code_object(bytes(gfx942))
    x86 = code.copy()
    x86[18:20] = (62).to_bytes(2, "little")
    with pytest.raises(BinaryError, match="not an AMDGPU code object"):
        load_code_object(bytes(x86))


def test_flipped_bytes_never_escape_as_other_errors():
    code = assemble(_BODY)
    for place in range(0, len(code), 5):
        damaged = bytearray(code)
        damaged[place] ^= 0xA5
        try:
            loaded = load_code_object(bytes(damaged))
            for kernel in loaded.kernels.values():
                _ = kernel.instructions
        except BinaryError:
            pass


# ---- the same by another reader ---------------------------------------------------------------


def _by_pyelftools(code):
    """(symbols of kernels, line table) as pyelftools reads them."""
    elf = ELFFile(io.BytesIO(code))
    kernels = {
        (symbol.name, symbol["st_value"], symbol["st_size"])
        for section in elf.iter_sections()
        if section["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM")
        for symbol in section.iter_symbols()
        if symbol.name.endswith(".kd")
    }
    start, table = elf.get_section_by_name(".text")["sh_addr"], {}
    dwarf = elf.get_dwarf_info()
    for unit in dwarf.iter_CUs():
        for entry in dwarf.line_program_for_CU(unit).get_entries():
            if entry.state is not None and not entry.state.end_sequence:
                table[entry.state.address - start] = entry.state.line
    return kernels, table


def _source(body):
    values = {"name": "k", "vgprs": 64, "accum": 64, "lds": 0, "kernarg": 64, "denormals": 3}
    return _FRAME.format(body=body, extra="", **values)


_LONG = (
    "".join(f"  v_mov_b32 v{i % 64}, {i}\n" + "\n" * (i % 90) for i in range(400))
    + ".fill 900, 4, 0xbf800000\n"
    + _BODY
)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_line_tables_of_all_versions(tmp_path, version):
    """Steps of lines and addresses of all sizes: special opcodes, advances, a constant add."""
    (tmp_path / "k.s").write_text(_source(_LONG))
    code = link(tmp_path, [f"-gdwarf-{version}"], "k.s")
    kernels, table = _by_pyelftools(code)
    loaded = load_code_object(code)
    assert len(table) == 403 and loaded.line_table == table
    image = read_elf(code)
    assert {(k.name, k.address, k.size) for k in image.kernels} == kernels


def test_a_compressed_line_table(tmp_path):
    (tmp_path / "k.s").write_text(_source(_LONG))
    plain = load_code_object(link(tmp_path, ["-g"], "k.s"))
    run_zig(["ld.lld", "-shared", "--compress-debug-sections=zlib", "k.o", "-o", "z.co"], tmp_path)
    packed = (tmp_path / "z.co").read_bytes()
    image = read_elf(packed)
    assert image.section(".debug_line").flags & 0x800
    assert load_code_object(packed).line_table == plain.line_table
    assert len(plain.line_table) == 403
