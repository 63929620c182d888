"""Every number the cycle model rests on: value, range, unit, source.

"assumed" in a source says that nobody published a measurement: the value is what an architecture
of this family does, or what is least surprising, and the range says how far off it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from mlagen.errors import ConfigError
from mlagen.targets.gfx950.limits import GFX950
from mlagen.timing.fitted import FITTED


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
    Constant("lds_bytes", 256, 128, 256, "B/cycle",
             "CDNA3: 128; CDNA4: 256 (AMD, FP8 GEMM Optimization on CDNA4, 2026, table 1), which "
             "the fit prefers too; 180 to 210 were measured (GroupGEMM's tuning log)"),
    Constant("lds_latency", 64, 56, 72, "cycles",
             "measured: dependent ds_read_b32 69 cycles (triton fork), less issue and address"),
    Constant("tr_phases", 2, 2, 4, "phases",
             "ds_read_b64_tr_*: not measured anywhere; those of ds_read_b64 assumed"),
    Constant("lds_dma_bytes", 128, 64, 256, "B/cycle", "LDS writes of a DMA; assumed"),
    Constant("lgkm_limit", GFX950.lgkmcnt_max, 15, 16, "operations",
             "4-bit counter (CDNA4 ISA guide)"),
    # Global memory.
    Constant("ta_bytes", 64, 64, 128, "B/cycle", "addresses and data of a CU's L1; CDNA3 guides"),
    Constant("l2_bytes", 64, 32, 64, "B/cycle",
             "a CU's share of its XCD's L2: 16 channels of 128 B for 32 CUs, CDNA3"),
    Constant("l2_latency", 500, 300, 790, "cycles",
             "measured pointer chase from HBM 790 at 2.2 GHz (triton fork); L2 class assumed"),
    Constant("hbm", 8000, 6500, 8000, "GB/s", "AMD: 8 TB/s, all CUs together"),
    Constant("smem_latency", 200, 100, 400, "cycles", "scalar cache and L2; assumed"),
    Constant("vm_limit", GFX950.vmcnt_max, 63, 64, "operations", "6-bit counter (CDNA4 ISA guide)"),
    # Control.
    Constant("salu_latency", 4, 4, 8, "cycles", "one slot; assumed"),
    Constant("barrier", 16, 4, 40, "cycles", "last arrival to first issue; assumed"),
    Constant("branch_taken", 20, 8, 40, "cycles", "to the next instruction's issue; assumed"),
    Constant("branch_not_taken", 8, 4, 16, "cycles", "assumed"),
    # Chip.
    Constant("max_clock", 2.4, 2.4, 2.4, "GHz", "AMD: MI355X at 1400 W; MI350X: 2.2"),
    Constant("cus", 256, 256, 256, "CUs", "AMD: 8 XCDs of 32"),
    Constant("dispatch", 1500, 500, 4000, "cycles",
             "a workgroup's start on a CU that another has left; assumed"),
    Constant("launch", 4.0, 2.0, 8.0, "us", "a kernel's start and end; assumed"),
    # Power. The fitted ones are effective energies: they take in what else holds the clock down.
    Constant("power_limit", 1400, 1400, 1400, "W", "AMD: MI355X; MI350X: 1000"),
    Constant("idle_power", 240, 239, 247, "W",
             "measured on eight idle MI355X (a benchmark's node report, August 2026)"),
    Constant("voltage", 0.5, 0.0, 0.8, "exponent",
             "how energy grows with the clock, relative to 1.6 GHz: V squared; assumed, the fit "
             "does not tell it from `e_cycle`"),
    Constant("e_cycle", FITTED["e_cycle"], 0, 1600, "pJ",
             "a CU and cycle, whatever it does; fitted"),
    Constant("e_bf16", FITTED["e_bf16"], 0.2, 0.8, "pJ/op", "fitted to published kernels"),
    Constant("e_f16", FITTED["e_f16"], 0.2, 0.9, "pJ/op", "fitted to published kernels"),
    Constant("e_f8", FITTED["e_f8"], 0.1, 0.4, "pJ/op", "fitted to published kernels"),
    Constant("e_f4", FITTED["e_f4"], 0.05, 0.3, "pJ/op", "fitted to published kernels"),
    Constant("e_vector", FITTED["e_vector"], 0, 1300, "pJ",
             "a vector instruction of a wave; packed and transcendental ones twice; fitted"),
    Constant("e_lds", FITTED["e_lds"], 0, 8, "pJ/B", "fitted; no more than `e_l2`"),
    Constant("e_l2", 8, 4, 16, "pJ/B", "a byte from the L2 to a CU: 1 pJ a bit; assumed"),
    Constant("e_hbm", 35, 30, 60, "pJ/B",
             "a byte from the HBM: HBM2's 3.9 pJ a bit (O'Connor et al., MICRO 2017) and the way"),
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
    cus: int
    dispatch: int
    launch: float
    power_limit: float
    idle_power: float
    voltage: float
    e_cycle: float
    e_bf16: float
    e_f16: float
    e_f8: float
    e_f4: float
    e_vector: float
    e_lds: float
    e_l2: float
    e_hbm: float

    def changed(self, **values: float) -> Machine:
        """Another machine. ConfigError for a name that is no constant, or a value below zero."""
        for name, value in values.items():
            if name not in BY_NAME:
                raise ConfigError(
                    f"unknown constant {name!r}", hint="they are: " + ", ".join(BY_NAME)
                )
            if not 0 <= value < float("inf") or (
                name in ("max_clock", "power_limit", "cus", "exp", "lds_bytes") and value == 0
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
