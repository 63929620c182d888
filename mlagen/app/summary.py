"""What a build is told by: the facts of an artifact in a few lines, and as a JSON report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlagen.artifact import Artifact, Manifest
from mlagen.artifact.files import MANIFEST, file_names
from mlagen.artifact.manifest import NOT_COMPARED
from mlagen.targets.registry import NVIDIA, limits_of, vendor_of


def build_summary(artifact: Artifact, directory: Path) -> dict[str, Any]:
    """The report of `mlagen build --json`: the manifest without its source map."""
    manifest = artifact.manifest
    kept = {name: getattr(manifest, name) for name in manifest.__struct_fields__}
    del kept["source"], kept["schema"]
    return {"key": artifact.key, "directory": str(directory), **kept}


def build_facts(artifact: Artifact, directory: Path) -> list[tuple[str, str]]:
    """(name, value) lines of `mlagen build`."""
    manifest = artifact.manifest
    problem = ", ".join(f"{name}={value}" for name, value in manifest.problem.items())
    knobs = ", ".join(f"{name}={value}" for name, value in manifest.knobs.items())
    code, text = file_names(manifest.target)
    files = {"code": code, "text": text, "manifest": MANIFEST}
    return [
        ("kernel", f"{manifest.kernel} for {manifest.target} ({manifest.schedule_file})"),
        ("problem", f"{manifest.problem_type}({problem})"),
        ("knobs", knobs or "none"),
        ("proof", proof_text(manifest)),
        ("registers", registers_text(manifest)),
        ("memory", memory_text(manifest)),
        *((("rounds", manifest.rounds),) if manifest.numerics else ()),
        ("made by", tools_text(manifest)),
        ("key", artifact.key),
        *((name, str(directory / file)) for name, file in files.items()),
    ]


def tools_text(manifest: Manifest) -> str:
    """Tools and versions; of ptxas also the one that the kernels were measured with, if another."""
    versions = dict(manifest.tools)
    if "ptxas" in versions:
        from mlagen.targets.nvidia.ptxas import told

        versions["ptxas"] = told(versions["ptxas"])
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def proof_text(manifest: Manifest) -> str:
    """`proved: …`, `ordered: …`, or `UNPROVED` with the reasons, one a line."""
    proof = manifest.proof
    pairs = f"{proof.status}: {proof.pairs} access pairs are ordered"
    tiles = f"for any number of tiles (expanded up to {proof.checked_tiles})"
    if manifest.proved:
        return f"{pairs} and each operation takes what the plain loop gives it, {tiles}"
    if proof.launchable:
        return f"{pairs}, {tiles}; {NOT_COMPARED}"
    return "UNPROVED, never launched" + "".join(f"\n  {reason}" for reason in proof.reasons)


def registers_text(manifest: Manifest) -> str:
    """Registers used against what the target lets one wave or thread of this workgroup have."""
    r, limits = manifest.resources, limits_of(manifest.target)
    x, y, z = manifest.block
    if vendor_of(manifest.target) is NVIDIA:
        budget = limits.register_budget(x * y * z)
        return f"{r.vgprs} of {budget} a thread at entry; roles then take their own"
    waves = -(-x * y * z // limits.wave_size)
    return (
        f"{r.vgprs} vector + {r.agprs} accumulator of {limits.vgpr_budget(waves)}, "
        f"{r.sgprs} scalar of {limits.sgprs_per_wave}"
    )


def memory_text(manifest: Manifest) -> str:
    """LDS or SMEM against the target's, scratch and spills."""
    r, limits = manifest.resources, limits_of(manifest.target)
    if vendor_of(manifest.target) is NVIDIA:
        return (
            f"SMEM {r.lds_bytes} of {limits.smem_bytes} B, stack {r.scratch_bytes} B, "
            f"spills {r.vgpr_spills} B"
        )
    return (
        f"LDS {r.lds_bytes} of {limits.lds_bytes} B, scratch {r.scratch_bytes} B, "
        f"spills {r.vgpr_spills} vector + {r.sgpr_spills} scalar"
    )
