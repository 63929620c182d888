"""Containers, descriptors, metadata and line tables; foreign and damaged files."""

import pytest
from gfx950_assembler import assemble

from mlagen.binary import load_code_object
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
