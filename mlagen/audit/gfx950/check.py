"""The audit of a code object: every check over every kernel of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mlagen.audit.gfx950.budget import DEFAULT_LIMIT, Budget, OutOfSteps, Watch
from mlagen.audit.gfx950.causes import by_copy, by_guess, by_wait
from mlagen.audit.gfx950.findings import Finding
from mlagen.audit.gfx950.followed import why_not_followed
from mlagen.audit.gfx950.lds import LdsOptions, LdsReport, check_lds
from mlagen.audit.gfx950.reachable import without_empty_waves
from mlagen.audit.gfx950.register_findings import close_pairs, missing_waits, outside, strict_waits
from mlagen.audit.gfx950.states import check_states
from mlagen.audit.gfx950.steps import Step, read_steps
from mlagen.audit.gfx950.waits import WaitReport, check_waits
from mlagen.audit.gfx950.witness import Ways
from mlagen.audit.launch import NOT_KNOWN, KnownLaunch
from mlagen.binary import CodeObject, KernelCode, load_code_object
from mlagen.binary.flow import Flow, read_flow
from mlagen.errors import ConfigError
from mlagen.severity import ADVICE, ERROR, of, rank
from mlagen.targets.gfx950.limits import GFX950


@dataclass(frozen=True, slots=True)
class WaitSlack:
    """An s_waitcnt: the counts it asks for (None: not at all), and the weakest ones that would do
    while all other waits stay (None: nothing relies on it). What could not be told apart, such as
    LDS that a barrier may publish, counts as needed."""

    pc: int
    vmcnt: int | None
    lgkmcnt: int | None
    enough_vmcnt: int | None
    enough_lgkmcnt: int | None


@dataclass(frozen=True)
class KernelAudit:
    """What the audit says of one kernel. `entry`: its address in the ELF file, from which all
    offsets count. `threads`: of a workgroup, as they were taken. `unchecked`: what was not covered;
    `limited`: some of it for want of steps. `lds`: how far the LDS part went, None where the
    workgroup is no whole number of waves, or no step was left."""

    kernel: str
    entry: int
    threads: int
    instructions: int
    vgprs: int
    accum_offset: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    waves_per_simd: int
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]
    limited: bool
    waits: tuple[WaitSlack, ...]
    lds: LdsReport | None

    @property
    def errors(self) -> tuple[Finding, ...]:
        return of(self.findings, ERROR)

    @property
    def advice(self) -> tuple[Finding, ...]:
        return of(self.findings, ADVICE)


@dataclass(frozen=True)
class Report:
    """All kernels of one code object."""

    kernels: tuple[KernelAudit, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for kernel in self.kernels for finding in kernel.findings)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for kernel in self.kernels for finding in kernel.errors)


def audit_code_object(
    code: bytes | CodeObject,
    *,
    kernel: str | None = None,
    threads: int = 0,
    launch: KnownLaunch = NOT_KNOWN,
    limit: int = DEFAULT_LIMIT,
    watch: Watch | None = None,
) -> Report:
    """Check the kernels of a gfx950 code object on all paths, without inputs.

    `kernel`: only this one. `threads`: of a workgroup; 0 takes what the launch says, else what the
    metadata allows at most. `launch`: what is known of it.
    `limit`: steps that each part of each kernel's audit may take; what that leaves out is told.
    `watch(part, steps)` is called now and then.
    Raises BinaryError for code that cannot be read, ConfigError for a workgroup that cannot be.
    """
    loaded = code if isinstance(code, CodeObject) else load_code_object(code)
    chosen = list(loaded.kernels.values()) if kernel is None else [loaded.kernel(kernel)]
    return Report(
        tuple(audit_kernel(one, threads, launch=launch, limit=limit, watch=watch) for one in chosen)
    )


def audit_kernel(
    kernel: KernelCode,
    threads: int = 0,
    *,
    launch: KnownLaunch = NOT_KNOWN,
    limit: int = DEFAULT_LIMIT,
    watch: Watch | None = None,
) -> KernelAudit:
    """Check one kernel; see `audit_code_object`."""
    _check_sizes(kernel, threads, launch)
    if limit < 1:
        raise ConfigError(f"a limit of {limit} steps; an audit takes at least 1")
    steps = read_steps(kernel)
    flow = without_empty_waves(steps, read_flow(kernel.instructions))
    declared = kernel.info.max_workgroup_threads if kernel.info else 0
    launched = math.prod(launch.block) if launch.block else 0
    threads = threads or launched or declared or GFX950.wave_size
    unchecked = _unchecked(steps, flow)
    spent: list[str] = []
    findings = outside(kernel, steps)
    waits = WaitReport()
    try:
        waits = check_waits(steps, flow, Budget("waits", limit, watch))
    except OutOfSteps:
        spent.append("results in flight, and how strict waits are, are not covered")
    ways = Ways(steps, flow, Budget("paths", limit, watch))
    missing, untold = missing_waits(kernel, steps, waits, ways)
    findings += missing
    if untold:
        spent.append(f"{untold} uses of results in flight were not followed to a path")
    try:
        close = check_states(steps, flow, Budget("wait states", limit, watch))
        findings += close_pairs(kernel, steps, close)
    except OutOfSteps:
        spent.append("wait states are not covered")
    lds = None
    if threads % GFX950.wave_size:
        unchecked.append(f"LDS: {threads} threads are no whole number of waves")
    else:
        try:
            waves, budget = threads // GFX950.wave_size, Budget("LDS", limit, watch)
            lds = check_lds(kernel, waves, LdsOptions(launch), budget)
        except OutOfSteps:
            spent.append("LDS and barriers are not covered")
        else:
            findings += lds.findings
            unchecked += lds.unchecked
            if lds.cut:
                spent.append(
                    f"LDS and barriers: covered on {lds.runs} sets of paths, which passed "
                    f"{lds.edges[0]} of {lds.edges[1]} edges of the code"
                )
    try:
        budget = Budget("advice", limit, watch)
        blamed = _blamed(steps, flow, findings, budget)
        findings += strict_waits(kernel, steps, waits, blamed)
    except OutOfSteps:
        spent.append("how strict waits are is not covered")
    unchecked = [f"limit of {limit} steps: {what}" for what in spent] + unchecked
    findings = by_guess(by_copy(by_wait(findings), kernel.instructions))
    descriptor = kernel.descriptor
    return KernelAudit(
        kernel=kernel.name,
        entry=kernel.address,
        threads=threads,
        instructions=len(steps),
        vgprs=descriptor.vgprs,
        accum_offset=descriptor.accum_offset,
        sgprs=descriptor.sgprs,
        lds_bytes=descriptor.lds_bytes,
        scratch_bytes=descriptor.scratch_bytes,
        waves_per_simd=GFX950.waves_per_simd(descriptor.vgprs),
        findings=tuple(sorted(findings, key=lambda f: (rank(f.severity), f.pc, f.rule))),
        unchecked=tuple(unchecked),
        limited=bool(spent),
        waits=_slack(steps, waits),
        lds=lds,
    )


def _check_sizes(kernel: KernelCode, threads: int, launch: KnownLaunch) -> None:
    """ConfigError for a workgroup, or LDS, that no launch of the kernel has."""
    launched = math.prod(launch.block) if launch.block else 0
    for count in (threads, launched):
        if not 0 <= count <= GFX950.max_workgroup_threads:
            raise ConfigError(
                f"a workgroup of {count} threads; gfx950 has at most {GFX950.max_workgroup_threads}"
            )
    if threads and launched and threads != launched:
        raise ConfigError(f"{threads} threads, but the launch has {launched} in a workgroup")
    static, dynamic = kernel.descriptor.lds_bytes, launch.dynamic_bytes or 0
    if dynamic and static + dynamic > GFX950.lds_bytes:
        raise ConfigError(
            f"{dynamic} bytes of LDS asked for at launch and the kernel's {static} are more than "
            f"the {GFX950.lds_bytes} that a workgroup has",
            hint=f"at most {max(GFX950.lds_bytes - static, 0)}",
        )


def _blamed(
    steps: tuple[Step, ...], flow: Flow, findings: Iterable[Finding], budget: Budget
) -> set[tuple[int, str]]:
    """Waits (byte offset, counter) that advice to weaken would contradict an error of: those that
    it passes on its way, each of which asks for too little for a result that is still in flight
    after it; and those before which a barrier is missing, or behind which."""
    ways = Ways(steps, flow, budget)
    at = {step.ins.offset: step.index for step in steps}
    blamed = set()
    for finding in findings:
        if finding.severity == ADVICE or finding.rule == "wait-states":
            continue
        for name, is_vm in (("vmcnt", True), ("lgkmcnt", False)):
            pairs = [
                (at[place.other_pc], at[place.pc])
                for place in finding.places
                if place.other_pc is not None
            ]
            pairs = [pair for pair in pairs if (steps[pair[0]].queue == "vm") == is_vm]
            for queue in {steps[load].queue for load, _ in pairs}:
                loads = {load for load, _ in pairs if steps[load].queue == queue}
                uses = {use for load, use in pairs if load in loads}
                between = ways.waits_between(loads, uses)
                if finding.rule.startswith("lds-") and not finding.changes:
                    between |= ways.first_covers(loads)
                blamed |= {(steps[index].ins.offset, name) for index in between}
    return blamed


def _unchecked(steps: tuple[Step, ...], flow: Flow) -> list[str]:
    told = []
    indexed = [step for step in steps if step.indexed]
    if indexed:
        told.append(
            f"{len(indexed)} instructions from {indexed[0].ins.offset:#x} on name their registers "
            "by M0 (s_set_gpr_idx_on): which ones is not known"
        )
    why: dict[tuple[str, str], list[int]] = {}
    for step in steps:
        reason = why_not_followed(step.ins)
        if reason:
            why.setdefault((step.ins.mnemonic, reason), []).append(step.ins.offset)
    for (name, reason), places in why.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        told.append(f"{name} at {places[0]:#x}{more}: {reason}")
    if flow.indirect:
        jumps = ", ".join(f"{pc:#x}" for pc in flow.indirect)
        told.append(f"indirect jumps at {jumps}: what follows them is not audited")
    return told


def _slack(steps: tuple[Step, ...], waits: WaitReport) -> tuple[WaitSlack, ...]:
    rows = []
    for index, use in sorted(waits.uses.items()):
        step = steps[index]
        assert step.wait is not None
        vm, lgkm = step.wait
        rows.append(
            WaitSlack(
                step.ins.offset,
                vm if vm < GFX950.vmcnt_max else None,
                lgkm if lgkm < GFX950.lgkmcnt_max else None,
                use.vm if vm < GFX950.vmcnt_max else None,
                use.lgkm if lgkm < GFX950.lgkmcnt_max else None,
            )
        )
    return tuple(rows)
