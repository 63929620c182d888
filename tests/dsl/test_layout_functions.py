"""LDS layouts: bijection, DMA and read plans against brute force, bank phases."""

import pytest

from mlagen.attention.prefill.gfx950.fragments import FORMATS, key_fragments, transposed_fragments
from mlagen.errors import ScheduleError
from mlagen.targets.gfx950.dsl.layout import BitMap, Subtiled, Xor, bank_cycles
from mlagen.targets.gfx950.dsl.lds import plan_dma, plan_reads

K_LAYOUT = Subtiled(64, 256, 32, 64, Xor((8, 9), (4, 5)))
V_LAYOUT = Subtiled(64, 256, 8, 64)
VALUES = transposed_fragments(FORMATS["bf16"], 64, 128)


@pytest.mark.parametrize("layout", [K_LAYOUT, V_LAYOUT], ids=["K", "V"])
def test_every_byte_has_one_place(layout):
    places = {layout.offset(row, byte) for row in range(64) for byte in range(256)}
    assert places == set(range(layout.size))


@pytest.mark.parametrize("layout", [K_LAYOUT, V_LAYOUT], ids=["K", "V"])
def test_dma_lands_in_layout_order(layout):
    """Lane l of wave w writes LDS linearly; what it fetches must belong there."""
    plan = plan_dma(layout, waves=8)
    seen = set()
    for delta, base in zip(plan.row_offsets, plan.lds_offsets, strict=True):
        for thread in range(512):
            lds = base + (thread >> 6) * 1024 + (thread & 63) * 16
            row, byte = plan.row(thread) + delta, plan.byte(thread)
            assert layout.offset(row, byte) == lds
            seen.add(lds)
    assert len(seen) * 16 == layout.size


@pytest.mark.parametrize(
    ("layout", "fragments", "width"),
    [(K_LAYOUT, key_fragments(64, 128), 16), (V_LAYOUT, VALUES, 8)],
    ids=["K", "V"],
)
def test_read_plan_addresses_the_fragment(layout, fragments, width):
    plan = plan_reads(layout, fragments, width)
    for fragment, (base, offset) in zip(fragments, plan.reads, strict=True):
        for lane in range(64):
            assert plan.bases[base](lane) + offset == layout.offset(*fragment(lane))


def test_default_swizzles_read_without_bank_conflicts():
    keys = plan_reads(K_LAYOUT, key_fragments(64, 128), 16)
    values = plan_reads(V_LAYOUT, VALUES, 8)
    assert keys.cycles == keys.ideal_cycles == 64
    assert values.cycles == values.ideal_cycles == 64


def test_without_swizzle_keys_conflict():
    plain = Subtiled(64, 256, 32, 64, Xor.of("none"))
    plan = plan_reads(plain, key_fragments(64, 128), 16)
    assert plan.cycles > plan.ideal_cycles


def test_bank_cycles_count_different_dwords_of_one_bank():
    assert bank_cycles([0] * 64, 8) == (2, 2)  # one dword pair for all: broadcast
    assert bank_cycles([lane * 256 for lane in range(64)], 8) == (64, 2)


def test_bit_map_moves_spell_the_function():
    swizzle = Xor((8, 9), (4, 5))

    def function(x: int) -> int:
        return swizzle((x & 31) << 6 | (x >> 5) << 4)

    mapped = BitMap.of(function, 6)
    for x in range(64):
        value = 0
        for mask, shift in mapped.moves():
            field = x & mask
            value ^= field << shift if shift >= 0 else field >> -shift
        assert value ^ mapped.constant == function(x)


def test_not_linear_is_refused():
    with pytest.raises(ScheduleError, match="not linear"):
        BitMap.of(lambda x: x * x, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((64, 256, 24, 64), "power of two"),
        ((64, 256, 128, 64), "does not divide"),
        ((64, 256, 8, 64, Xor((8, 9), (4, 5))), "beyond the sub-block"),
    ],
)
def test_impossible_layouts_are_refused(arguments, message):
    with pytest.raises(ScheduleError, match=message):
        Subtiled(*arguments)


def test_swizzle_that_is_not_invertible_is_refused():
    with pytest.raises(ScheduleError, match="not invertible"):
        Xor((4, 5), (5, 6))


def test_swizzle_below_sixteen_bytes_splits_a_dma_lane():
    layout = Subtiled(64, 256, 32, 64, Xor((8,), (3,)))
    with pytest.raises(ScheduleError, match="splits the 16 bytes"):
        plan_dma(layout, waves=8)


def test_waves_that_read_a_part_of_their_own():
    """With one reader a thread of the workgroup, addresses are functions of 9 bits."""
    layout = Subtiled(256, 128, 16, 128, Xor((8, 9, 10), (4, 5, 6)))

    def fragment(block):
        return lambda thread: (
            64 * (thread // 64 % 4) + 32 * block + thread % 32,
            16 * (thread % 64 // 32),
        )

    fragments = [fragment(block) for block in range(2)]
    plan = plan_reads(layout, fragments, 16, readers=512)
    for part, (base, offset) in zip(fragments, plan.reads, strict=True):
        for thread in range(512):
            assert plan.bases[base](thread) + offset == layout.offset(*part(thread))
    assert plan.cycles == plan.ideal_cycles == 2 * 4


def test_the_slowest_wave_counts():
    layout = Subtiled(64, 128, 16, 128)

    def fragment(thread):  # wave 0 reads one address, wave 1 a column of 32 rows
        return (thread % 32, 0) if thread // 64 else (0, 0)

    with pytest.raises(ScheduleError, match="LDS read address is not linear"):
        plan_reads(layout, [fragment], 16, readers=128)
    one = plan_reads(layout, [lambda thread: (thread % 32, 0)], 16)
    both = plan_reads(layout, [lambda thread: (thread % 32, 16 * (thread // 64))], 16, readers=128)
    assert one.cycles == both.cycles > both.ideal_cycles


def test_a_swizzle_by_name():
    assert Xor.of("8-9 into 4-5") == Xor((8, 9), (4, 5))
    assert Xor.of("10-8 into 4-6") == Xor((10, 9, 8), (4, 5, 6))
    assert Xor.of("9-9 into 5-5") == Xor((9,), (5,))
    assert Xor.of("none") is None
    for wrong in ("8-9", "8-9 into 4", "8-9 into 4-6", "8-9 into 9-10", ""):
        with pytest.raises(ScheduleError, match="swizzle"):
            Xor.of(wrong)
