"""Every number the cycle model rests on: value, range, unit, source.

"assumed" in a source says that nobody published a measurement: the value is what an architecture
of this family does, or what is least surprising, and the range says how far off it may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

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


def _known(value: float, low: float, high: float, unit: str, source: str) -> Any:
    """A field of `Machine` with its entry in `CONSTANTS`."""
    return field(default=value, metadata={"about": (value, low, high, unit, source)})


# fmt: off
@dataclass(frozen=True, slots=True)
class Machine:
    """The values a simulation uses, the table's by default."""

    # Issue.
    slot: int = _known(4, 4, 4, "cycles",
        "a SIMD's turn to issue: 64 lanes over 16-wide units (CDNA ISA guides)")
    valu: int = _known(4, 4, 4, "cycles",
        "AMD: 157.3 TF f32 = 64 packed lanes in 4 cycles on 4 SIMDs of 256 CUs")
    exp: int = _known(8, 8, 16, "cycles",
        "AMD says CDNA4 doubles CDNA3's quarter rate (16); no number is published")
    slow_int: int = _known(16, 8, 16, "cycles", "32-bit integer multiplies, quarter rate; assumed")
    permlane: int = _known(8, 4, 8, "cycles", "LLVM: two micro-operations")
    co_issue: int = _known(0, 0, 1, "switch",
        "two VALU instructions of two waves in one slot: rocprof counts them on MI350, which "
        "pairs qualify is not published")
    valu_latency: int = _known(8, 8, 8, "cycles",
        "measured: dependent f32 FMA chain (Meta's triton fork, s_memtime)")
    trans_latency: int = _known(4, 0, 8, "cycles",
        "of a transcendental result beyond its issue; LLVM asks one wait state; assumed")
    # Matrix unit.
    mfma_port: int = _known(4, 4, 16, "cycles",
        "that an MFMA keeps the VALU from issuing; one slot, assumed")
    mfma_tail: int = _known(16, 8, 20, "cycles",
        "from the last pass to a VALU read of the result: LLVM's P + 4 wait states")
    # LDS.
    lds_bytes: int = _known(256, 128, 256, "B/cycle",
        "CDNA3: 128; CDNA4: 256 (AMD, FP8 GEMM Optimization on CDNA4, 2026, table 1), which "
        "the fit prefers too; 180 to 210 were measured (GroupGEMM's tuning log)")
    lds_latency: int = _known(64, 56, 72, "cycles",
        "measured: dependent ds_read_b32 69 cycles (triton fork), less issue and address")
    tr_phases: int = _known(2, 2, 4, "phases",
        "ds_read_b64_tr_*: not measured anywhere; those of ds_read_b64 assumed")
    lds_dma_bytes: int = _known(128, 64, 256, "B/cycle", "LDS writes of a DMA; assumed")
    lgkm_limit: int = _known(GFX950.lgkmcnt_max, 15, 16, "operations",
        "4-bit counter (CDNA4 ISA guide)")
    # Global memory.
    ta_bytes: int = _known(64, 64, 128, "B/cycle", "addresses and data of a CU's L1; CDNA3 guides")
    l2_bytes: int = _known(64, 32, 64, "B/cycle",
        "a CU's share of its XCD's L2: 16 channels of 128 B for 32 CUs, CDNA3")
    l2_latency: int = _known(500, 300, 790, "cycles",
        "of a load that hits the L2; MI300X class, assumed")
    hbm_latency: int = _known(359, 340, 800, "ns",
        "measured: pointer chase from HBM, 790 cycles at 2.2 GHz (triton fork); 800 where "
        "addresses have to be translated too, MI300X")
    hbm: float = _known(6500, 6175, 6825, "GB/s",
        "what all CUs together get of 8 TB/s: 6.5 by the notes on AITER's Gluon kernels, and "
        "6.53 in its pull request 4794")
    hbm_rows: float = _known(0.926, 0.88, 1.0, "part",
        "of `hbm` where rows of a paged cache are gathered; fitted to one call (docs/timing.md)")
    hbm_pin: float = _known(8000, 8000, 8000, "GB/s", "AMD: 8 stacks of HBM3E, 8 TB/s")
    mall: float = _known(11900, 10000, 17200, "GB/s",
        "Infinity Cache to all XCDs: 11.9 measured on MI300X (Chips and Cheese), 17.2 by AMD")
    mall_bytes: float = _known(256e6, 256e6, 256e6, "B", "AMD: Infinity Cache of 256 MB")
    xcd_l2_bytes: float = _known(4e6, 4e6, 4e6, "B", "AMD: L2 of an XCD, 4 MB")
    smem_latency: int = _known(200, 100, 400, "cycles", "scalar cache and L2; assumed")
    vm_limit: int = _known(GFX950.vmcnt_max, 63, 64, "operations",
        "6-bit counter (CDNA4 ISA guide)")
    # Control.
    salu_latency: int = _known(4, 4, 8, "cycles", "one slot; assumed")
    barrier: int = _known(16, 4, 40, "cycles", "last arrival to first issue; assumed")
    branch_taken: int = _known(20, 8, 40, "cycles", "to the next instruction's issue; assumed")
    branch_not_taken: int = _known(8, 4, 16, "cycles", "assumed")
    # Chip.
    max_clock: float = _known(2.4, 2.4, 2.4, "GHz", "AMD: MI355X at 1400 W; MI350X: 2.2")
    cus: int = _known(256, 256, 256, "CUs", "AMD: 8 XCDs of 32")
    dispatch: int = _known(1500, 500, 4000, "cycles",
        "a workgroup's start on a CU that another has left; assumed")
    launch: float = _known(4.0, 2.0, 8.0, "us", "a kernel's start and end; assumed")
    # Power. The fitted ones are effective energies: they take in what else holds the clock down.
    power_limit: float = _known(1400, 1400, 1400, "W", "AMD: MI355X; MI350X: 1000")
    idle_power: float = _known(240, 239, 247, "W",
        "measured on eight idle MI355X (a benchmark's node report, August 2026)")
    voltage: float = _known(0.5, 0.0, 0.8, "exponent",
        "how energy grows with the clock, relative to 1.6 GHz: V squared; assumed, the fit "
        "does not tell it from `e_cycle`")
    e_cycle: float = _known(FITTED["e_cycle"], 0, 1600, "pJ",
        "a CU and cycle, whatever it does; fitted")
    e_bf16: float = _known(FITTED["e_bf16"], 0.2, 0.8, "pJ/op", "fitted to published kernels")
    e_f16: float = _known(FITTED["e_f16"], 0.2, 0.9, "pJ/op", "fitted to published kernels")
    e_f8: float = _known(FITTED["e_f8"], 0.1, 0.4, "pJ/op", "fitted to published kernels")
    e_f4: float = _known(FITTED["e_f4"], 0.05, 0.3, "pJ/op", "fitted to published kernels")
    e_vector: float = _known(FITTED["e_vector"], 0, 1300, "pJ",
        "a vector instruction of a wave; packed and transcendental ones twice; fitted")
    e_lds: float = _known(FITTED["e_lds"], 0, 8, "pJ/B", "fitted; no more than `e_l2`")
    e_l2: float = _known(8, 4, 16, "pJ/B", "a byte from the L2 to a CU: 1 pJ a bit; assumed")
    e_hbm: float = _known(35, 30, 60, "pJ/B",
        "a byte from the HBM: HBM2's 3.9 pJ a bit (O'Connor et al., MICRO 2017) and the way")
    # fmt: on

    def changed(self, **values: float) -> Machine:
        """Another machine. ConfigError for a name that is no constant, or a value below zero."""
        kinds = {each.name: each.type for each in fields(self)}
        for name, value in values.items():
            if name not in kinds:
                known = ", ".join(kinds)
                raise ConfigError(f"unknown constant {name!r}", hint=f"they are: {known}")
            if not 0 <= value < float("inf") or (
                name in ("max_clock", "power_limit", "cus", "exp", "lds_bytes") and value == 0
            ):
                raise ConfigError(f"constant {name}={value} is out of range")
        cast = {name: value if kinds[name] == "float" else int(value)
                for name, value in values.items()}  # fmt: skip
        return replace(self, **cast)  # type: ignore[arg-type]


CONSTANTS: tuple[Constant, ...] = tuple(
    Constant(each.name, *each.metadata["about"]) for each in fields(Machine)
)


def machine() -> Machine:
    """The machine of the table's values."""
    return Machine()
