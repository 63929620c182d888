"""Every number the cycle model rests on: value, range, unit, source.

"assumed" in a source says that nobody published a measurement: the value is what an architecture
of this family does, or what is least surprising, and the range says how far off it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from mlagen.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Constant:
    """One number with the range in which the truth is believed to lie."""

    name: str
    value: float
    low: float
    high: float
    unit: str
    source: str


CONSTANTS: tuple[Constant, ...] = (
    # Issue.
    Constant("slot", 4, 4, 4, "cycles",
             "a SIMD's turn to issue: 64 lanes over 16-wide units (CDNA ISA guides)"),
    Constant("valu", 4, 4, 4, "cycles",
             "AMD: 157.3 TF f32 = 64 packed lanes in 4 cycles on 4 SIMDs of 256 CUs"),
    Constant("exp", 8, 8, 16, "cycles",
             "AMD says CDNA4 doubles CDNA3's quarter rate (16); no number is published"),
    Constant("slow_int", 16, 8, 16, "cycles", "32-bit integer multiplies, quarter rate; assumed"),
    Constant("permlane", 8, 4, 8, "cycles", "LLVM: two micro-operations"),
    Constant("co_issue", 0, 0, 1, "switch",
             "two VALU instructions of two waves in one slot: rocprof counts them on MI350, which "
             "pairs qualify is not published"),
    Constant("valu_latency", 8, 8, 8, "cycles",
             "measured: dependent f32 FMA chain (Meta's triton fork, s_memtime)"),
    Constant("trans_latency", 4, 0, 8, "cycles",
             "of a transcendental result beyond its issue; LLVM asks one wait state; assumed"),
    # Matrix unit.
    Constant("mfma_port", 4, 4, 16, "cycles",
             "that an MFMA keeps the VALU from issuing; one slot, assumed"),
    Constant("mfma_tail", 16, 8, 20, "cycles",
             "from the last pass to a VALU read of the result: LLVM's P + 4 wait states"),
    # LDS.
    Constant("lds_bytes", 128, 128, 256, "B/cycle",
             "CDNA3: 128; press on CDNA4: 256; the calibration points fit 128 best"),
    Constant("lds_latency", 64, 56, 72, "cycles",
             "measured: dependent ds_read_b32 69 cycles (triton fork), less issue and address"),
    Constant("tr_phases", 2, 2, 4, "phases",
             "ds_read_b64_tr_*: not measured anywhere; those of ds_read_b64 assumed"),
    Constant("lds_dma_bytes", 128, 64, 256, "B/cycle", "LDS writes of a DMA; assumed"),
    Constant("lgkm_limit", 15, 15, 16, "operations", "4-bit counter (CDNA4 ISA guide)"),
    # Global memory.
    Constant("ta_bytes", 64, 64, 128, "B/cycle", "addresses and data of a CU's L1; CDNA3 guides"),
    Constant("l2_bytes", 64, 32, 64, "B/cycle",
             "a CU's share of its XCD's L2: 16 channels of 128 B for 32 CUs, CDNA3"),
    Constant("l2_latency", 500, 300, 790, "cycles",
             "measured pointer chase from HBM 790 at 2.2 GHz (triton fork); L2 class assumed"),
    Constant("hbm", 8000, 6500, 8000, "GB/s", "AMD: 8 TB/s, all CUs together"),
    Constant("smem_latency", 200, 100, 400, "cycles", "scalar cache and L2; assumed"),
    Constant("vm_limit", 63, 63, 64, "operations", "6-bit counter (CDNA4 ISA guide)"),
    # Control.
    Constant("salu_latency", 4, 4, 8, "cycles", "one slot; assumed"),
    Constant("barrier", 16, 4, 40, "cycles", "last arrival to first issue; assumed"),
    Constant("branch_taken", 20, 8, 40, "cycles", "to the next instruction's issue; assumed"),
    Constant("branch_not_taken", 8, 4, 16, "cycles", "assumed"),
    # Chip.
    Constant("max_clock", 2.4, 2.4, 2.4, "GHz", "AMD: MI355X at 1400 W; MI350X: 2.2"),
    Constant("sustain", 0.761, 0.65, 0.87, "of max_clock",
             "clock under load: fitted to the calibration points, so it also takes in what the "
             "model leaves out; a bf16 MFMA loop reaches 0.87 (rocm-systems PR 3837)"),
    Constant("cus", 256, 256, 256, "CUs", "AMD: 8 XCDs of 32"),
    Constant("dispatch", 1500, 500, 4000, "cycles",
             "a workgroup's start on a CU that another has left; assumed"),
    Constant("launch", 4.0, 2.0, 8.0, "us", "a kernel's start and end; assumed"),
)  # fmt: skip
BY_NAME: Mapping[str, Constant] = {constant.name: constant for constant in CONSTANTS}


@dataclass(frozen=True, slots=True)
class Machine:
    """The values a simulation uses; fields are the names of CONSTANTS."""

    slot: int
    valu: int
    exp: int
    slow_int: int
    permlane: int
    co_issue: int
    valu_latency: int
    trans_latency: int
    mfma_port: int
    mfma_tail: int
    lds_bytes: int
    lds_latency: int
    tr_phases: int
    lds_dma_bytes: int
    lgkm_limit: int
    ta_bytes: int
    l2_bytes: int
    l2_latency: int
    hbm: float
    smem_latency: int
    vm_limit: int
    salu_latency: int
    barrier: int
    branch_taken: int
    branch_not_taken: int
    max_clock: float
    sustain: float
    cus: int
    dispatch: int
    launch: float

    @property
    def clock(self) -> float:
        """GHz under load."""
        return self.max_clock * self.sustain

    def changed(self, **values: float) -> Machine:
        """Another machine. ConfigError for a name that is no constant, or a value below zero."""
        for name, value in values.items():
            if name not in BY_NAME:
                raise ConfigError(
                    f"unknown constant {name!r}", hint="they are: " + ", ".join(BY_NAME)
                )
            if value < 0 or (
                name in ("max_clock", "sustain", "cus", "exp", "lds_bytes") and value == 0
            ):
                raise ConfigError(f"constant {name}={value} is out of range")
        kinds = {field.name: field.type for field in fields(self)}
        cast = {name: value if kinds[name] == "float" else int(value)
                for name, value in values.items()}  # fmt: skip
        return replace(self, **cast)  # type: ignore[arg-type]


def machine() -> Machine:
    """The machine of the table's values."""
    kinds = {field.name: field.type for field in fields(Machine)}
    values = {c.name: c.value if kinds[c.name] == "float" else int(c.value) for c in CONSTANTS}
    return Machine(**values)  # type: ignore[arg-type]
