"""The facts of an artifact that stand at the head of an inspection."""

from __future__ import annotations

from mlagen.artifact import Artifact
from mlagen.targets.registry import NVIDIA, vendor_of


def artifact_facts(artifact: Artifact) -> tuple[tuple[str, str], ...]:
    """(name, value), one for each problem field, knob and tool: what two may differ in."""
    manifest = artifact.manifest
    return (
        ("kernel", manifest.kernel),
        ("schedule", manifest.schedule_file),
        ("problem", manifest.problem_type),
        *((f"problem {name}", str(value)) for name, value in manifest.problem.items()),
        *((f"knob {name}", str(value)) for name, value in manifest.knobs.items()),
        *((f"tool {name}", version) for name, version in sorted(manifest.tools.items())),
        ("flags", " ".join(manifest.flags)),
        ("proof", manifest.proof.extent()),
        *((("rounds", manifest.rounds),) if manifest.numerics else ()),
        ("key", artifact.key),
    )


def artifact_resources(artifact: Artifact) -> tuple[tuple[str, int], ...]:
    """(name, amount) of a wave (registers, scratch) and a workgroup (memory, threads)."""
    manifest, held = artifact.manifest, artifact.manifest.resources
    x, y, z = manifest.block
    if vendor_of(manifest.target) is NVIDIA:
        return (
            ("registers at entry", held.vgprs),
            ("SMEM bytes", held.lds_bytes),
            ("stack bytes", held.scratch_bytes),
            ("spill bytes", held.vgpr_spills),
            ("threads", x * y * z),
        )
    return (
        ("vector registers", held.vgprs),
        ("accumulator registers", held.agprs),
        ("scalar registers", held.sgprs),
        ("LDS bytes", held.lds_bytes),
        ("scratch bytes", held.scratch_bytes),
        ("spills", held.vgpr_spills + held.sgpr_spills),
        ("threads", x * y * z),
    )
