"""The generator's table of required software wait states on gfx950, and a tracker that applies it.

gfx950 does not interlock every dependency: between some pairs of instructions the program itself
must leave a number of *wait states*. Every instruction that is issued counts as one, and `s_nop N`
as N + 1. A pair of distance 1 (adjacent instructions) has 0 wait states between.

The table is data: a `Rule` names a producer class and the registers of it that matter, a consumer
class and the registers of it that matter, and the wait states when the two overlap. Sources:

* ISA 11: AMD, "CDNA4 Instruction Set Architecture", 4.5, table 11 (software-inserted wait states)
* ISA 7.3: the same guide, 7.3, note to the conversions to 8 bits and less
* ISA 38: the same guide, 7.6, table 38 (matrix and dot product instructions)
* LLVM: GCNHazardRecognizer.cpp of llvm-project, for what the guide leaves out
* LLVM 197267: pull request 197267 of llvm-project, merged in 2026, measured on gfx950: the guide
  exempts buffer stores whose offset is an SGPR, and the hardware does not

Where this table is stricter than the guide, the rule says why (`stricter`). `docs/hazards.md`
compares it, pair by pair, with the padding that LLVM emits.

The caller describes each instruction once as a `HazardInfo`; all the matching against the table is
done there, so `HazardTracker.required` costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto
from functools import lru_cache

from mlagen.errors import UnsupportedError


class HazardKind(IntFlag):
    """What an instruction is, for this table. Combine where two hold: v_exp_f32_dpp is TRANS | DPP,
    v_cvt_pk_fp8_f32 is CONVERT_PART, and with op_sel for the high half CONVERT_PART | PARTIAL.

    `HazardKind.OTHER` (s_waitcnt, s_barrier, s_branch, ...) takes part in no rule.
    """

    OTHER = 0
    VALU = auto()  # any vector instruction that no name below fits, v_accvgpr_* included
    TRANS = auto()  # exp, log, rcp, rsq, sqrt, sin, cos (ISA table 12)
    PARTIAL = auto()  # op_sel or SDWA moves the result within the register (upper half, byte 1..3)
    CONVERT_PART = auto()  # v_cvt_*_f32 that writes a half or a byte of its register, either one
    DPP = auto()
    PERMLANE = auto()  # v_permlane16_swap, v_permlane32_swap
    READLANE = auto()  # v_readlane, v_readfirstlane
    WRITELANE = auto()
    DIV_FMAS = auto()
    DOT = auto()  # v_dot*
    MFMA = auto()  # matrix instructions on f16, bf16, fp8, fp6, fp4, i8 (ISA: XDL)
    MFMA_F32 = auto()  # v_mfma_f32_*_f32 (ISA: SGEMM)
    SALU = auto()  # s_set_gpr_idx_* included: it writes M0
    SETREG = auto()
    GETREG = auto()
    SENDMSG = auto()
    MOVREL = auto()  # s_movrel*: index in M0
    SMEM = auto()
    LDS = auto()  # ds_*
    VMEM = auto()  # buffer_*, global_*, scratch_*
    LDS_DMA = auto()  # buffer_load ... lds, global_load_lds_*


ORDINARY_VALU = (
    HazardKind.VALU | HazardKind.TRANS | HazardKind.PARTIAL | HazardKind.DPP | HazardKind.PERMLANE
    | HazardKind.READLANE | HazardKind.WRITELANE | HazardKind.DIV_FMAS | HazardKind.CONVERT_PART
)  # fmt: skip
MATRIX = HazardKind.MFMA | HazardKind.MFMA_F32
MEMORY = HazardKind.LDS | HazardKind.VMEM | HazardKind.LDS_DMA

# v0..v255 are bits 0..255 of a vector mask, a0..a255 bits 256..511.
_VCC, _M0, _EXEC = 106, 124, 126  # scalar operand numbers (CDNA4 ISA, scalar sources)
VCC = 0b11 << _VCC
M0 = 1 << _M0
EXEC = 0b11 << _EXEC
HWREG = 1 << 200  # stands for the hardware registers that s_setreg and s_getreg reach


def mask(registers: Iterable[int]) -> int:
    """Bit mask of register numbers: VGPR n is bit n, AGPR n bit 256 + n; SGPR n is bit n."""
    result = 0
    for number in registers:
        result |= 1 << number
    return result


def span(first: int, count: int = 1) -> int:
    """Bit mask of `count` consecutive registers: v[8:23] is span(8, 16), a[0:3] span(256, 4)."""
    return ((1 << count) - 1) << first


class OperandSet(Enum):
    """Which registers of an instruction a rule looks at."""

    VGPR_READS = "vgpr_reads"
    VGPR_WRITES = "vgpr_writes"
    SRC_AB = "src_ab"
    SRC_C = "src_c"
    WRITES_NOT_C = "writes_not_c"  # written, and not read as SrcC by the same instruction
    STORE_DATA = "store_data"
    STORE_DATA_OFFSET = "store_data_offset"  # of a buffer store whose offset is an SGPR
    SGPR_READS = "sgpr_reads"
    SGPR_WRITES = "sgpr_writes"
    LANE_SELECT = "lane_select"
    EXEC = "exec"  # the mask that every vector instruction obeys


class Chain(Enum):
    """Restricts a rule by how the consumer continues the producer."""

    ANY = auto()
    SAME = auto()  # same opcode and passes, and SrcC is exactly the producer's result
    BROKEN = auto()  # anything else
    SAME_OPCODE = auto()
    OTHER_OPCODE = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """One row. `states` is a number of wait states, or one per MFMA pass count."""

    name: str
    relation: str  # "RAW", "WAW" or "WAR"
    producer: HazardKind
    produces: OperandSet
    consumer: HazardKind
    consumes: OperandSet
    states: int | Mapping[int, int]
    source: str
    within: int = -1  # only these registers, as a mask; -1: any
    chain: Chain = Chain.ANY
    not_producer: HazardKind = HazardKind.OTHER
    not_consumer: HazardKind = HazardKind.OTHER
    stricter: str = ""  # why more than the guide asks

    def wait_states(self, passes: int) -> int:
        """Wait states for a producer of that many passes (0: not a matrix instruction)."""
        if isinstance(self.states, int):
            return self.states
        if passes not in self.states:
            known = ", ".join(str(count) for count in self.states)
            raise UnsupportedError(
                f"hazard rule {self.name!r} has no row for a matrix instruction of {passes} passes",
                hint=f"gfx950 has matrix instructions of {known} passes",
            )
        return self.states[passes]


_ISA_11 = "CDNA4 ISA, table 11"
_ISA_7_3 = "CDNA4 ISA, 7.3"
_ISA_38 = "CDNA4 ISA, table 38"
_LLVM = "LLVM, GCNHazardRecognizer"
_LLVM_197267 = "LLVM PR 197267"
_RESULT = {2: 5, 4: 8, 8: 12, 16: 20}  # an MFMA's result has reached the register file
_RESULT_F32 = {2: 4, 4: 6, 8: 10, 16: 18}
_READ_C = {2: 1, 4: 3, 8: 7, 16: 15}  # an MFMA has read all of its SrcC
_LOAD = (
    "the guide names only vector instructions as overwriters; a load may return before the "
    "matrix instruction is done, and nothing says that it is held back"
)
_MATRIX_WAW = (
    "the guide has no row for two matrix instructions writing the same registers, so the second "
    "counts as the vector instruction that it is"
)
_MASK = "the guide asks 0 where the mask is a carry-in; v_cndmask's mask is taken as a constant"


def _results(name: str, kind: HazardKind, states: Mapping[int, int]) -> tuple[Rule, ...]:
    """Rows of what may touch the result of a matrix instruction, other than as its SrcC."""
    vector, written = ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_WRITES
    return (
        Rule(f"{name}-read", "RAW", kind, written, vector | MEMORY, OperandSet.VGPR_READS,
             states, _ISA_38),
        Rule(f"{name}-overwrite", "WAW", kind, written, vector, written, states, _ISA_38),
        Rule(f"{name}-overwrite-load", "WAW", kind, written, MEMORY, written, states, _ISA_38,
             stricter=_LOAD),
        Rule(f"{name}-overwrite-mfma", "WAW", kind, written, MATRIX, OperandSet.WRITES_NOT_C,
             states, _ISA_38, stricter=_MATRIX_WAW),
        Rule(f"{name}-src-ab", "RAW", kind, written, MATRIX, OperandSet.SRC_AB, states, _ISA_38),
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    # Results of matrix instructions.
    *_results("mfma", HazardKind.MFMA, _RESULT),
    Rule("mfma-src-c-same", "RAW", HazardKind.MFMA, OperandSet.VGPR_WRITES,
         HazardKind.MFMA, OperandSet.SRC_C, {2: 2, 4: 0, 8: 0, 16: 0}, _ISA_38, chain=Chain.SAME),
    Rule("mfma-src-c", "RAW", HazardKind.MFMA, OperandSet.VGPR_WRITES,
         HazardKind.MFMA, OperandSet.SRC_C, {2: 4, 4: 6, 8: 10, 16: 18}, _ISA_38,
         chain=Chain.BROKEN,
         stricter="the guide asks 0 for equal registers and pass counts; here the opcode must be "
         "the same too, because forwarding between different opcodes is not documented"),
    Rule("mfma-src-c-f32", "RAW", HazardKind.MFMA, OperandSet.VGPR_WRITES,
         HazardKind.MFMA_F32, OperandSet.SRC_C, {2: 3, 4: 6, 8: 10, 16: 18}, _ISA_38),
    *_results("mfma-f32", HazardKind.MFMA_F32, _RESULT_F32),
    Rule("mfma-f32-src-c-same", "RAW", HazardKind.MFMA_F32, OperandSet.VGPR_WRITES,
         HazardKind.MFMA_F32, OperandSet.SRC_C, {2: 2, 4: 0, 8: 0, 16: 0}, _ISA_38,
         chain=Chain.SAME),
    Rule("mfma-f32-src-c-f32", "RAW", HazardKind.MFMA_F32, OperandSet.VGPR_WRITES,
         HazardKind.MFMA_F32, OperandSet.SRC_C, {2: 2, 4: 4, 8: 8, 16: 16}, _ISA_38,
         chain=Chain.BROKEN),
    Rule("mfma-f32-src-c", "RAW", HazardKind.MFMA_F32, OperandSet.VGPR_WRITES,
         HazardKind.MFMA, OperandSet.SRC_C, {2: 2, 4: 0, 8: 0, 16: 0}, _ISA_38,
         stricter="the guide asks 0; a two-pass result is not forwarded even within one opcode"),
    # Operands of matrix instructions.
    Rule("mfma-src-c-overwrite", "WAR", HazardKind.MFMA, OperandSet.SRC_C,
         ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_WRITES, _READ_C, _ISA_38),
    Rule("mfma-src-c-overwrite-load", "WAR", HazardKind.MFMA, OperandSet.SRC_C,
         MEMORY, OperandSet.VGPR_WRITES, _READ_C, _ISA_38, stricter=_LOAD),
    Rule("valu-mfma", "RAW", ORDINARY_VALU, OperandSet.VGPR_WRITES,
         MATRIX, OperandSet.VGPR_READS, 2, _ISA_38),
    Rule("exec-mfma", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         MATRIX, OperandSet.EXEC, 4, _ISA_38, within=EXEC),
    # Dot products.
    Rule("dot-src-ab", "RAW", HazardKind.DOT, OperandSet.VGPR_WRITES,
         HazardKind.DOT, OperandSet.SRC_AB, 3, _ISA_38, chain=Chain.SAME_OPCODE),
    Rule("dot-read", "RAW", HazardKind.DOT, OperandSet.VGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT | MATRIX | MEMORY, OperandSet.VGPR_READS, 3, _ISA_38,
         chain=Chain.OTHER_OPCODE),
    Rule("dot-overwrite", "WAW", HazardKind.DOT, OperandSet.VGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT | MATRIX | MEMORY, OperandSet.VGPR_WRITES, 3, _ISA_38,
         chain=Chain.OTHER_OPCODE),
    # Vector results.
    Rule("trans-valu", "RAW", HazardKind.TRANS, OperandSet.VGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_READS, 1, _ISA_11,
         not_consumer=HazardKind.TRANS),
    Rule("partial-valu", "RAW", HazardKind.PARTIAL, OperandSet.VGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_READS, 1, _ISA_11),
    Rule("partial-overwrite", "WAW", HazardKind.PARTIAL, OperandSet.VGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT | MATRIX, OperandSet.VGPR_WRITES, 1, _LLVM,
         stricter="the guide names readers only; the parity of a register that is overwritten in "
         "part is made of the moved result, and LLVM waits before any overwrite"),
    Rule("convert-halves", "WAW", HazardKind.CONVERT_PART, OperandSet.VGPR_WRITES,
         HazardKind.CONVERT_PART, OperandSet.VGPR_WRITES, 1, _ISA_7_3),
    Rule("valu-dpp", "RAW", ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_WRITES,
         HazardKind.DPP, OperandSet.VGPR_READS, 2, _ISA_11),
    Rule("exec-vmem", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.VMEM | HazardKind.LDS_DMA, OperandSet.EXEC, 5, _LLVM, within=EXEC,
         stricter="the guide names the SGPRs of an address; LLVM takes EXEC for read, too"),
    Rule("exec-dpp", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.DPP, OperandSet.EXEC, 5, _ISA_11, within=EXEC),
    Rule("valu-permlane", "RAW", ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_WRITES,
         HazardKind.PERMLANE, OperandSet.VGPR_READS, 2, _ISA_11),
    Rule("exec-permlane", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.PERMLANE, OperandSet.EXEC, 4, _ISA_11, within=EXEC),
    Rule("valu-readlane", "RAW", ORDINARY_VALU | HazardKind.DOT, OperandSet.VGPR_WRITES,
         HazardKind.READLANE, OperandSet.VGPR_READS, 1, _ISA_11),
    Rule("exec-lane", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.READLANE | HazardKind.WRITELANE, OperandSet.EXEC, 4, _ISA_11, within=EXEC),
    # Scalar registers written by vector instructions.
    Rule("sgpr-valu", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         ORDINARY_VALU | HazardKind.DOT, OperandSet.SGPR_READS, 2, _ISA_11, stricter=_MASK),
    Rule("sgpr-lane-select", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.READLANE | HazardKind.WRITELANE, OperandSet.LANE_SELECT, 4, _ISA_11),
    Rule("vcc-div-fmas", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.DIV_FMAS, OperandSet.SGPR_READS, 4, _ISA_11, within=VCC),
    Rule("sgpr-vmem", "RAW", ORDINARY_VALU, OperandSet.SGPR_WRITES,
         HazardKind.VMEM | HazardKind.LDS_DMA, OperandSet.SGPR_READS, 5, _ISA_11),
    # Stores that still read their data.
    Rule("store-data-valu", "WAR", HazardKind.VMEM, OperandSet.STORE_DATA,
         ORDINARY_VALU | HazardKind.DOT | MATRIX, OperandSet.VGPR_WRITES, 2, _ISA_11),
    Rule("store-data-offset-valu", "WAR", HazardKind.VMEM, OperandSet.STORE_DATA_OFFSET,
         ORDINARY_VALU | HazardKind.DOT | MATRIX, OperandSet.VGPR_WRITES, 1, _LLVM_197267,
         stricter="the guide asks nothing where the offset is an SGPR; on gfx950 the next vector "
         "instruction's result was stored"),
    Rule("store-data-load", "WAR", HazardKind.VMEM, OperandSet.STORE_DATA,
         MEMORY, OperandSet.VGPR_WRITES, 1, _ISA_11),
    # M0 and the hardware registers.
    Rule("m0-use", "RAW", HazardKind.SALU, OperandSet.SGPR_WRITES,
         HazardKind.LDS_DMA | HazardKind.SENDMSG | HazardKind.MOVREL, OperandSet.SGPR_READS, 1,
         _ISA_11, within=M0),
    Rule("setreg-getreg", "RAW", HazardKind.SETREG, OperandSet.SGPR_WRITES,
         HazardKind.GETREG, OperandSet.SGPR_READS, 2, _ISA_11, within=HWREG,
         stricter="the guide asks it for the same hardware register; here all count as one"),
    Rule("setreg-setreg", "WAW", HazardKind.SETREG, OperandSet.SGPR_WRITES,
         HazardKind.SETREG, OperandSet.SGPR_WRITES, 2, _ISA_11, within=HWREG,
         stricter="the guide asks it for the same hardware register; here all count as one"),
)  # fmt: skip

MAX_WAIT_STATES = max(
    rule.states if isinstance(rule.states, int) else max(rule.states.values()) for rule in RULES
)

# Registers that an instruction uses without naming them as an operand.
_IMPLIED_READS = (
    (HazardKind.LDS_DMA | HazardKind.SENDMSG | HazardKind.MOVREL, M0),
    (HazardKind.DIV_FMAS, VCC),
    (HazardKind.GETREG, HWREG),
)


@lru_cache(maxsize=256)
def _rows(kind: int) -> tuple[tuple[tuple[int, Rule], ...], tuple[tuple[int, Rule], ...]]:
    """Rules in which an instruction of this kind can be the producer, and the consumer."""
    rules = tuple(enumerate(RULES))
    produced = (x for x in rules if kind & x[1].producer and not kind & x[1].not_producer)
    consumed = (x for x in rules if kind & x[1].consumer and not kind & x[1].not_consumer)
    return tuple(produced), tuple(consumed)


@dataclass(frozen=True, slots=True)
class HazardInfo:
    """One instruction as this table sees it. Register sets are bit masks: see `mask` and `span`.

    kind         what it is; `HazardKind.OTHER` needs nothing else
    opcode       the mnemonic; two matrix or dot instructions chain only when it is equal
    passes       matrix instructions: 2, 4, 8 or 16 (UnsupportedError otherwise)
    vgpr_reads   every VGPR and AGPR read: sources, address, data, and the destination where the
                 instruction keeps a part of it (op_sel, v_writelane, DPP's old value, both
                 operands of a permlane swap)
    vgpr_writes  every VGPR and AGPR written, by loads too (not by LDS-DMA)
    src_ab       matrix, dot: SrcA, SrcB and block scales (a subset of vgpr_reads)
    src_c        matrix, dot: the accumulator read (a subset of vgpr_reads; 0 for an inline 0)
    store_data   VMEM: the data of a store of 3 or 4 dwords; also of a cmpswap_x2
    store_data_offset  the same of a buffer store whose offset operand is an SGPR
    sgpr_reads   scalar operands, VCC and M0 included; not EXEC as the implicit lane mask
    sgpr_writes  scalar results, VCC, EXEC (v_cmpx) and M0 included
    lane_select  v_readlane, v_writelane: the SGPR that selects the lane

    M0 of LDS-DMA, s_sendmsg and s_movrel, VCC of v_div_fmas and the hardware registers of
    s_setreg and s_getreg are added here.
    """

    kind: HazardKind
    opcode: str = ""
    passes: int = 0
    vgpr_reads: int = 0
    vgpr_writes: int = 0
    src_ab: int = 0
    src_c: int = 0
    store_data: int = 0
    store_data_offset: int = 0
    sgpr_reads: int = 0
    sgpr_writes: int = 0
    lane_select: int = 0
    # (rule, registers, wait states) to set up, and (rule, registers) to look up: filled here.
    produces: tuple[tuple[int, int, int], ...] = field(
        default=(), init=False, repr=False, compare=False
    )
    consumes: tuple[tuple[int, int], ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = int(self.kind)
        if not kind:
            return
        reads, writes = self.sgpr_reads | self.lane_select, self.sgpr_writes
        for kinds, registers in _IMPLIED_READS:
            if kind & kinds:
                reads |= registers
        if kind & HazardKind.SETREG:
            writes |= HWREG
        registers_of = {
            OperandSet.VGPR_READS: self.vgpr_reads,
            OperandSet.VGPR_WRITES: self.vgpr_writes,
            OperandSet.SRC_AB: self.src_ab,
            OperandSet.SRC_C: self.src_c,
            OperandSet.WRITES_NOT_C: self.vgpr_writes & ~self.src_c,
            OperandSet.STORE_DATA: self.store_data,
            OperandSet.STORE_DATA_OFFSET: self.store_data_offset,
            OperandSet.SGPR_READS: reads,
            OperandSet.SGPR_WRITES: writes,
            OperandSet.LANE_SELECT: self.lane_select,
            OperandSet.EXEC: EXEC,
        }
        produced, consumed = _rows(kind)
        produces = []
        for index, rule in produced:
            registers = registers_of[rule.produces] & rule.within
            if registers and (states := rule.wait_states(self.passes)):
                produces.append((index, registers, states))
        consumes = []
        for index, rule in consumed:
            registers = registers_of[rule.consumes] & rule.within
            if registers:
                consumes.append((index, registers))
        object.__setattr__(self, "produces", tuple(produces))
        object.__setattr__(self, "consumes", tuple(consumes))


def _applies(chain: Chain, producer: HazardInfo, consumer: HazardInfo) -> bool:
    same_opcode = producer.opcode == consumer.opcode
    if chain is Chain.SAME_OPCODE:
        return same_opcode
    if chain is Chain.OTHER_OPCODE:
        return not same_opcode
    same = (
        same_opcode
        and producer.passes == consumer.passes
        and producer.vgpr_writes == consumer.src_c
    )
    return same if chain is Chain.SAME else not same


@dataclass(frozen=True, slots=True)
class Unmet:
    """A requirement that the history leaves open: `states` more wait states because of `rule`."""

    rule: Rule
    producer: HazardInfo
    states: int


_CHAINS = tuple(None if rule.chain is Chain.ANY else rule.chain for rule in RULES)


class HazardTracker:
    """The wait states still owed at one point of a program, given the path that led there.

    A new tracker is a point before which nothing happened. At a join, `merge` the tracker of every
    path; for a loop, repeat its body until `merge` at the head changes nothing (it ends: the state
    only grows, and forgets what is `MAX_WAIT_STATES` old).
    """

    __slots__ = ("_now", "_pending")

    def __init__(self) -> None:
        self._now = 0
        # Per rule: (time from which the consumer may issue, registers, producer).
        self._pending: list[list[tuple[int, int, HazardInfo]]] = [[] for _ in RULES]

    def required(self, instruction: HazardInfo) -> int:
        """How many more wait states must pass before `instruction`; 0 when it may issue now."""
        pending = self._pending
        latest = self._now
        for index, registers in instruction.consumes:
            entries = pending[index]
            if entries:
                chain = _CHAINS[index]
                for safe, produced, producer in entries:
                    if (
                        safe > latest
                        and produced & registers
                        and (chain is None or _applies(chain, producer, instruction))
                    ):
                        latest = safe
        return latest - self._now

    def explain(self, instruction: HazardInfo) -> tuple[Unmet, ...]:
        """Every requirement that is open before `instruction`, the largest first."""
        found = []
        for index, registers in instruction.consumes:
            chain = _CHAINS[index]
            for safe, produced, producer in self._pending[index]:
                if (
                    safe > self._now
                    and produced & registers
                    and (chain is None or _applies(chain, producer, instruction))
                ):
                    found.append(Unmet(RULES[index], producer, safe - self._now))
        return tuple(sorted(found, key=lambda unmet: -unmet.states))

    def advance(self, instruction: HazardInfo, states: int = 1) -> None:
        """Issue `instruction`; `states` is what it counts as itself (s_nop N: use `nop`)."""
        self._now += states
        now = self._now
        for index, registers, needed in instruction.produces:
            entries = self._pending[index]
            if entries and entries[0][0] <= now:
                entries[:] = [entry for entry in entries if entry[0] > now]
            entries.append((now + needed, registers, instruction))

    def nop(self, states: int) -> None:
        """Let `states` wait states pass: `s_nop states - 1`, split above 16."""
        self._now += states

    def copy(self) -> HazardTracker:
        """An independent tracker at the same point."""
        result = HazardTracker()
        result._now = self._now
        result._pending = [list(entries) for entries in self._pending]
        return result

    def merge(self, other: HazardTracker) -> bool:
        """Join another path that ends at this point: the stricter of both holds from now on.

        True when this tracker got stricter.
        """
        changed = False
        for entries, others in zip(self._pending, other._pending, strict=True):
            if not others:
                continue
            owed = {
                (registers, producer): safe - self._now
                for safe, registers, producer in entries
                if safe > self._now
            }
            before = len(owed)
            raised = False
            for safe, registers, producer in others:
                states = safe - other._now
                key = (registers, producer)
                if states > owed.get(key, 0):
                    raised = raised or key in owed
                    owed[key] = states
            if raised or len(owed) != before:
                changed = True
                entries[:] = [
                    (states + self._now, registers, producer)
                    for (registers, producer), states in owed.items()
                ]
        return changed
