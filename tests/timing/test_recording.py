"""What the emulator records: every instruction in order, and the addresses of accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
from gfx950_assembler import assemble
from micro_kernels import POINTER, loop, recorded

from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
from mlagen.emulator.gfx950.recording import ROOM


def test_rows_are_those_executed_in_order() -> None:
    kernel, (stream,) = recorded(loop("  v_add_f32 v1, v2, v3", 3), waves=2)
    names = [kernel.instructions[row].mnemonic for row in stream.row[stream.wave == 1]]
    body = ["v_add_f32", "s_sub_u32", "s_cmp_lg_u32", "s_cbranch_scc1"]
    assert names == ["s_mov_b32", *body * 3, "s_endpgm"]
    assert (stream.waves, stream.workgroup, len(stream)) == (2, 0, 28)
    assert (stream.access == -1).all() and stream.addresses.shape == (0, 64)


def test_a_stream_longer_than_the_engines_room_is_whole() -> None:
    count = ROOM // 2  # four instructions an iteration
    kernel, (stream,) = recorded(loop("  v_add_f32 v1, v2, v3", count))
    assert len(stream) == 4 * count + 2
    adds = [row for row in stream.row if kernel.instructions[row].mnemonic == "v_add_f32"]
    assert len(adds) == count


def test_addresses_of_lds_and_of_memory() -> None:
    body = (
        POINTER
        + """
  v_lshlrev_b32 v1, 4, v0
  ds_read_b64 v[2:3], v1 offset:8
  v_mov_b32 v9, 0x7fffffff
  s_mov_b64 exec, 0xff
  global_load_dword v4, v1, s[4:5] offset:32
  ds_write2_b32 v1, v2, v3 offset0:1 offset1:5
"""
    )
    kernel, (stream,) = recorded(body, lds=2048)
    by_name = {
        kernel.instructions[row].mnemonic: stream.addresses[access]
        for row, access in zip(stream.row, stream.access, strict=True)
        if access >= 0
    }
    lanes = np.arange(64)
    np.testing.assert_array_equal(by_name["ds_read_b64"], 16 * lanes + 8)
    memory = by_name["global_load_dword"]
    np.testing.assert_array_equal(np.diff(memory[:8]), [16] * 7)
    assert memory[0] % 256 == 32 and (memory[8:] == -1).all()
    first = 16 * lanes[:8] + 4
    np.testing.assert_array_equal(by_name["ds_write2_b32"][:8], first | (first + 16) << 32)
    assert (by_name["ds_write2_b32"][8:] == -1).all()


def test_only_the_chosen_workgroups_and_only_when_asked() -> None:
    code = assemble("  v_add_f32 v1, v2, v3\n  s_endpgm\n", vgprs=128)
    arguments = [Argument(0, Buffer("memory", np.zeros(4, np.uint32)))]
    launch = Launch((4, 2, 1), (64, 1, 1), arguments)

    def streams(**options: Any) -> list[int]:
        result = emulate(code, launch, Settings(**options))
        return [stream.workgroup for stream in result.streams]

    assert streams() == []
    assert streams(record=True, workgroups=[(3, 0, 0), (1, 1, 0)]) == [3, 5]


def test_every_mode_records_what_it_executed() -> None:
    code = assemble(loop("  v_add_f32 v1, v2, v3", 3) + "  s_endpgm\n", vgprs=128)
    launch = Launch((1, 1, 1), (128, 1, 1), [Argument(0, Buffer("memory", np.zeros(4, np.uint32)))])
    runs = [
        emulate(code, launch, Settings(record=True, mode=mode))
        for mode in ("latest", "earliest", "random")
    ]
    for run in runs:
        (stream,) = run.streams
        assert len(stream) == run.wave_instructions == 28
        for wave in range(2):
            mine, first = (s.row[s.wave == wave] for s in (stream, runs[0].streams[0]))
            np.testing.assert_array_equal(mine, first)
