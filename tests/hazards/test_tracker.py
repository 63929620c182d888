"""The generator's wait-state tracker: counting, joins, agreement with the table read plainly."""

from __future__ import annotations

import random
import time

import pytest

from mlagen.errors import UnsupportedError
from mlagen.targets.gfx950.codegen.hazards import (
    EXEC,
    M0,
    MAX_WAIT_STATES,
    RULES,
    VCC,
    Chain,
    HazardInfo,
    HazardKind,
    HazardTracker,
    OperandSet,
    Rule,
    mask,
    span,
)

BF16 = "v_mfma_f32_32x32x16_bf16"


def mfma(
    d: int, c: int, *, passes: int = 8, opcode: str = BF16, a: int = span(200, 4)
) -> HazardInfo:
    return HazardInfo(
        HazardKind.MFMA, opcode, passes, vgpr_reads=a | c, vgpr_writes=d, src_ab=a, src_c=c
    )


def valu(writes: int = 0, reads: int = 0, kind: HazardKind = HazardKind.VALU) -> HazardInfo:
    return HazardInfo(kind, "v_op", vgpr_reads=reads, vgpr_writes=writes)


def after(*instructions: HazardInfo) -> HazardTracker:
    tracker = HazardTracker()
    for instruction in instructions:
        tracker.advance(instruction)
    return tracker


def test_masks() -> None:
    assert span(8, 3) == mask([8, 9, 10]) == 0b111 << 8
    assert mask([]) == 0
    assert [mask([106, 107]), mask([124]), mask([126, 127])] == [VCC, M0, EXEC]


@pytest.mark.parametrize(("passes", "states"), [(2, 5), (4, 8), (8, 12), (16, 20)])
def test_result_of_a_matrix_instruction(passes: int, states: int) -> None:
    d = span(0, 16)
    tracker = after(mfma(d, 0, passes=passes))
    assert tracker.required(valu(reads=span(15))) == states
    assert tracker.required(valu(writes=span(15))) == states
    assert tracker.required(valu(reads=span(16))) == 0
    assert (
        tracker.required(HazardInfo(HazardKind.LDS, "ds_write_b32", vgpr_reads=span(3))) == states
    )
    assert tracker.required(mfma(span(64, 16), 0, a=span(4, 4))) == states
    assert MAX_WAIT_STATES == 20


@pytest.mark.parametrize(("passes", "states"), [(2, 1), (4, 3), (8, 7), (16, 15)])
def test_accumulator_may_not_be_overwritten_while_it_is_read(passes: int, states: int) -> None:
    tracker = after(mfma(span(64, 16), span(0, 16), passes=passes))
    assert tracker.required(valu(writes=span(0))) == states
    assert (
        tracker.required(HazardInfo(HazardKind.LDS, "ds_read_b32", vgpr_writes=span(0))) == states
    )
    assert tracker.required(valu(writes=span(200))) == 0  # SrcA


def test_chains_on_one_accumulator() -> None:
    d = span(0, 16)
    tracker = after(mfma(d, d))
    assert tracker.required(mfma(d, d)) == 0
    assert tracker.required(mfma(span(64, 16), d)) == 0  # the same SrcC, the result elsewhere
    assert tracker.required(mfma(d, d, opcode="v_mfma_f32_32x32x16_f16")) == 10
    assert tracker.required(mfma(d, d, passes=16)) == 10  # f8f6f4 with other formats
    assert tracker.required(mfma(span(4, 16), span(4, 16))) == 10
    assert tracker.required(mfma(span(4, 16), 0)) == 12  # overwrites without reading
    assert tracker.required(mfma(span(64, 4), span(4, 4))) == 10
    assert tracker.required(mfma(d, 0)) == 12  # fresh accumulator over a result in flight
    two = after(mfma(span(0, 4), 0, passes=2))
    assert two.required(mfma(span(0, 4), span(0, 4), passes=2)) == 2


def test_wait_states_are_counted() -> None:
    tracker = after(mfma(span(0, 16), 0))
    reader = valu(reads=span(0))
    for left in range(12, 0, -1):
        assert tracker.required(reader) == left
        tracker.advance(HazardInfo(HazardKind.OTHER, "s_waitcnt"))
    assert tracker.required(reader) == 0

    tracker = after(mfma(span(0, 16), 0))
    tracker.nop(11)
    assert tracker.required(reader) == 1
    tracker.advance(HazardInfo(HazardKind.SALU, "s_add_u32"), 4)
    assert tracker.required(reader) == 0


def test_small_rules() -> None:
    v, s = span(1), span(20)
    writes_sgpr = HazardInfo(HazardKind.READLANE, "v_readfirstlane_b32", sgpr_writes=s)
    cases = [
        (valu(v), mfma(span(64, 16), 0, a=v), 2),
        (valu(v), valu(reads=v), 0),
        (valu(v), valu(reads=v, kind=HazardKind.PERMLANE), 2),
        (valu(v), valu(reads=v, kind=HazardKind.DPP), 2),
        (valu(v), valu(reads=v, kind=HazardKind.READLANE), 1),
        (valu(v, kind=HazardKind.TRANS), valu(reads=v), 1),
        (valu(v, kind=HazardKind.TRANS), valu(reads=v, kind=HazardKind.TRANS), 0),
        (valu(v, kind=HazardKind.PARTIAL), valu(reads=v, kind=HazardKind.TRANS), 1),
        (
            valu(v, kind=HazardKind.CONVERT_PART),
            valu(v, v, HazardKind.CONVERT_PART | HazardKind.PARTIAL),
            1,
        ),
        (valu(v, kind=HazardKind.CONVERT_PART), valu(reads=v), 0),
        (valu(v, kind=HazardKind.CONVERT_PART | HazardKind.PARTIAL), valu(reads=v), 1),
        (writes_sgpr, HazardInfo(HazardKind.VALU, "v_sub_u32", sgpr_reads=s), 2),
        (writes_sgpr, HazardInfo(HazardKind.VMEM, "buffer_load_dword", sgpr_reads=s), 5),
        (writes_sgpr, HazardInfo(HazardKind.READLANE, "v_readlane_b32", lane_select=s), 4),
        (writes_sgpr, HazardInfo(HazardKind.SALU, "s_add_u32", sgpr_reads=s), 0),
        (
            HazardInfo(HazardKind.VALU, "v_cmp", sgpr_writes=VCC),
            HazardInfo(HazardKind.DIV_FMAS, "fmas"),
            4,
        ),
        (HazardInfo(HazardKind.VALU, "v_cmpx", sgpr_writes=EXEC), mfma(span(0, 16), 0), 4),
        (HazardInfo(HazardKind.VALU, "v_cmpx", sgpr_writes=EXEC), valu(kind=HazardKind.DPP), 5),
        (HazardInfo(HazardKind.VALU, "v_cmpx", sgpr_writes=EXEC), valu(), 0),
        (
            HazardInfo(HazardKind.SALU, "s_mov_b32", sgpr_writes=M0),
            HazardInfo(HazardKind.LDS_DMA, "load"),
            1,
        ),
        (
            HazardInfo(HazardKind.SALU, "s_mov_b32", sgpr_writes=s),
            HazardInfo(HazardKind.LDS_DMA, "load"),
            0,
        ),
        (
            HazardInfo(HazardKind.VALU, "v_rfl", sgpr_writes=M0),
            HazardInfo(HazardKind.LDS_DMA, "load"),
            5,
        ),
        (HazardInfo(HazardKind.VMEM, "store", vgpr_reads=v, store_data=v), valu(v), 2),
        (HazardInfo(HazardKind.VMEM, "store", vgpr_reads=v), valu(v), 0),
        (HazardInfo(HazardKind.VMEM, "store", vgpr_reads=v, store_data_offset=v), valu(v), 1),
        (
            HazardInfo(HazardKind.SETREG, "s_setreg_b32"),
            HazardInfo(HazardKind.GETREG, "s_getreg_b32"),
            2,
        ),
        (
            HazardInfo(HazardKind.SETREG, "s_setreg_b32"),
            HazardInfo(HazardKind.SETREG, "s_setreg_b32"),
            2,
        ),
    ]
    for producer, consumer, states in cases:
        assert after(producer).required(consumer) == states, (producer.opcode, consumer.opcode)


def test_explain_names_rule_and_producer() -> None:
    first = mfma(span(0, 16), 0)
    second = valu(span(16))
    tracker = after(first, second)
    asked = tracker.explain(mfma(span(64, 16), 0, a=span(15, 2)))
    assert [(item.rule.name, item.producer, item.states) for item in asked] == [
        ("mfma-src-ab", first, 11),
        ("valu-mfma", second, 2),
    ]
    tracker.nop(20)
    assert tracker.explain(valu(reads=span(0))) == ()


def test_copy_is_independent() -> None:
    tracker = after(mfma(span(0, 16), 0))
    other = tracker.copy()
    other.nop(5)
    other.advance(valu(span(32), kind=HazardKind.TRANS))
    assert tracker.required(valu(reads=span(0))) == 12
    assert tracker.required(valu(reads=span(32))) == 0
    assert other.required(valu(reads=span(0))) == 6
    assert other.required(valu(reads=span(32))) == 1


def test_merge_takes_the_stricter_path() -> None:
    taken = after(mfma(span(0, 16), 0))
    taken.nop(10)
    other = after(valu(span(32), kind=HazardKind.TRANS))
    both = taken.copy()
    assert both.merge(other)
    assert both.required(valu(reads=span(0))) == 2
    assert both.required(valu(reads=span(32))) == 1
    assert not both.merge(other) and not both.merge(taken)
    later = after(mfma(span(0, 16), 0))
    assert both.merge(later)
    assert both.required(valu(reads=span(0))) == 12


def test_a_loop_reaches_its_fixed_point() -> None:
    body = [valu(span(40)), mfma(span(0, 16), 0), *[valu(span(50 + i)) for i in range(3)]]
    head = HazardTracker()
    rounds = 0
    while True:
        end = head.copy()
        for instruction in body:
            end.nop(end.required(instruction))
            end.advance(instruction)
        rounds += 1
        if not head.merge(end):
            break
    assert rounds <= 3
    assert head.required(valu(reads=span(0))) == 9


def test_unknown_pass_count_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="3 passes") as caught:
        mfma(span(0, 16), 0, passes=3)
    assert "2, 4, 8, 16" in str(caught.value)
    with pytest.raises(UnsupportedError, match="0 passes"):
        HazardInfo(HazardKind.MFMA_F32, "v_mfma_f32_16x16x4_f32", vgpr_writes=span(0, 4))


def test_rules_are_well_formed() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    writes = {OperandSet.VGPR_WRITES, OperandSet.WRITES_NOT_C, OperandSet.SGPR_WRITES}
    for rule in RULES:
        assert rule.source.startswith(("CDNA4 ISA, ", "LLVM"))
        assert rule.stricter or rule.source.startswith("CDNA4 ISA, "), rule.name
        assert ("RAW", "WAW", "WAR")[
            1 if rule.produces in writes and rule.consumes in writes
            else 2 if rule.consumes in writes else 0
        ] == rule.relation, rule.name  # fmt: skip


def _registers(info: HazardInfo, operand: OperandSet) -> int:
    """Registers of an instruction that a rule looks at, said a second time."""
    if operand is OperandSet.EXEC:
        return EXEC
    if operand is OperandSet.WRITES_NOT_C:
        return info.vgpr_writes & ~info.src_c
    own: int = getattr(info, operand.value)
    if operand is OperandSet.SGPR_READS and info.kind & (HazardKind.LDS_DMA | HazardKind.SENDMSG):
        own |= M0
    if operand is OperandSet.SGPR_READS and info.kind & HazardKind.DIV_FMAS:
        own |= VCC
    return own


def _plainly(rule: Rule, producer: HazardInfo, consumer: HazardInfo) -> int:
    """Wait states that one rule asks between two instructions."""
    if not producer.kind & rule.producer or not consumer.kind & rule.consumer:
        return 0
    if producer.kind & rule.not_producer or consumer.kind & rule.not_consumer:
        return 0
    common = _registers(producer, rule.produces) & _registers(consumer, rule.consumes) & rule.within
    if not common:
        return 0
    same_opcode = producer.opcode == consumer.opcode
    chained = (
        same_opcode
        and producer.passes == consumer.passes
        and producer.vgpr_writes == consumer.src_c
    )
    allowed = {
        Chain.ANY: True,
        Chain.SAME: chained,
        Chain.BROKEN: not chained,
        Chain.SAME_OPCODE: same_opcode,
        Chain.OTHER_OPCODE: not same_opcode,
    }
    return rule.wait_states(producer.passes) if allowed[rule.chain] else 0


def _random_instruction(rng: random.Random) -> HazardInfo:
    def some(count: int = 1) -> int:
        return span(rng.randrange(12), count)

    pick = rng.randrange(10)
    if pick == 0:
        kind = rng.choice((HazardKind.MFMA, HazardKind.MFMA_F32))
        passes = rng.choice((2, 4, 8, 16))
        ab, c = some(2), rng.choice((0, some(4)))
        return HazardInfo(kind, f"v_mfma_{kind.name}_{passes}", passes, vgpr_reads=ab | c,
                          vgpr_writes=some(4), src_ab=ab, src_c=c)  # fmt: skip
    if pick == 1:
        ab, c = some(2), some()
        return HazardInfo(HazardKind.DOT, rng.choice(("v_dot2", "v_dot4")), vgpr_reads=ab | c,
                          vgpr_writes=c, src_ab=ab, src_c=c)  # fmt: skip
    if pick == 2:
        data = some(4)
        return HazardInfo(HazardKind.VMEM, "buffer_store_dwordx4", vgpr_reads=data, store_data=data,
                          sgpr_reads=some())  # fmt: skip
    if pick == 3:
        return HazardInfo(rng.choice((HazardKind.LDS, HazardKind.VMEM)), "load", vgpr_reads=some(),
                          vgpr_writes=some())  # fmt: skip
    if pick == 4:
        return rng.choice((
            HazardInfo(HazardKind.SALU, "s_mov_b32", sgpr_writes=M0),
            HazardInfo(HazardKind.LDS_DMA, "load", vgpr_reads=some()),
            HazardInfo(HazardKind.OTHER, "s_waitcnt"),
        ))  # fmt: skip
    if pick == 5:
        return HazardInfo(HazardKind.READLANE, "v_readlane_b32", vgpr_reads=some(),
                          sgpr_writes=some(), lane_select=some())  # fmt: skip
    if pick == 6:
        return HazardInfo(HazardKind.VALU, "v_cmp", vgpr_reads=some(2),
                          sgpr_writes=rng.choice((VCC, EXEC, some(2))))  # fmt: skip
    kind = rng.choice(
        (
            HazardKind.VALU,
            HazardKind.TRANS,
            HazardKind.PARTIAL,
            HazardKind.DPP,
            HazardKind.PERMLANE,
            HazardKind.DIV_FMAS,
        )
    )
    return HazardInfo(kind, "v_op", vgpr_reads=some(2), vgpr_writes=some(), sgpr_reads=some())


def test_random_programs_against_the_table_read_plainly() -> None:
    rng = random.Random(7)
    asked = 0
    for _ in range(120):
        tracker = HazardTracker()
        history: list[tuple[int, HazardInfo]] = []  # (time right after the instruction, it)
        now = 0
        for _ in range(30):
            instruction = _random_instruction(rng)
            expected = max(
                (
                    _plainly(rule, producer, instruction) - (now - issued)
                    for issued, producer in history
                    if now - issued <= MAX_WAIT_STATES
                    for rule in RULES
                ),
                default=0,
            )
            assert tracker.required(instruction) == max(expected, 0)
            asked += expected > 0
            gap = rng.randrange(4) if rng.random() < 0.5 else 0
            tracker.nop(gap)
            tracker.advance(instruction)
            now += gap + 1
            history.append((now, instruction))
    assert asked > 500


def test_five_thousand_instructions_in_well_under_half_a_second() -> None:
    """A interleaved attention loop: one matrix instruction, five vector ones, by `HazardKind`."""
    program = []
    for index in range(5000 // 6):
        d = span(16 * (index % 4), 16)
        program.append(mfma(d, d, a=span(128 + 4 * (index % 8), 4)))
        base = 64 + index % 48
        program.append(valu(span(base), span(base)))
        program.append(valu(span(base + 1), span(base + 1), HazardKind.TRANS))
        program.append(valu(span(base + 2), span(base, 2)))
        program.append(HazardInfo(HazardKind.LDS, "ds_read_b128", vgpr_reads=span(250),
                                  vgpr_writes=span(160 + 4 * (index % 8), 4)))  # fmt: skip
        program.append(valu(span(base + 3), span(base + 1, 2)))

    def took() -> float:
        start, tracker, total = time.process_time(), HazardTracker(), 0
        for instruction in program:
            need = tracker.required(instruction)
            total += need
            tracker.nop(need)
            tracker.advance(instruction)
        assert total > 0
        return time.process_time() - start

    assert min(took() for _ in range(3)) < 0.5  # what else the machine does slows some of them
