"""Proving an artifact again: its schedule is built anew, and what comes out is compared.

A manifest's "proved" is a claim. Its digests are unkeyed: they tell damage, not who wrote it. Here
nothing of the artifact is believed but which problem and knobs it says it was built from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlagen.artifact import Artifact
from mlagen.artifact.manifest import Status
from mlagen.errors import ConfigError, FindingsError

# What a launch goes by. `tools` may be others; `source` and `map` are for people, yet compared.
_LAUNCHED = (
    "kernel", "symbol", "target", "problem_type", "problem", "knobs", "args", "kernarg_bytes",
    "block", "grid", "resources", "dependent", "numerics", "map", "source",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reproof:
    """What building an artifact's schedule again gave. `schedule`: that was built; `status` and
    `proof`: of the text that came out; `fields`: of the manifest that differ; `tools`: that made
    each of the two codes, where they differ."""

    schedule: str
    status: Status
    proof: str
    same_text: bool
    same_code: bool
    fields: tuple[str, ...]
    tools: str = ""

    @property
    def same(self) -> bool:
        """Whether the artifact is what its schedule gives."""
        return self.same_text and self.same_code and not self.fields

    @property
    def proved(self) -> bool:
        """Whether it is the same, and that is proved."""
        return self.same and self.status == "proved"

    def facts(self) -> list[tuple[str, str]]:
        """Name and value, one a line."""
        told = {True: "the same", False: "differs"}
        code = told[self.same_code] + (f" ({self.tools})" if self.tools else "")
        return [
            ("schedule", self.schedule),
            ("proof", self.proof),
            ("text", told[self.same_text]),
            ("code", code),
            ("manifest", f"differs: {', '.join(self.fields)}" if self.fields else "the same"),
            ("verdict", self.status if self.same else "differs"),
        ]

    def error(self) -> FindingsError | None:
        """What a command ends on, where the artifact is not what its schedule gives."""
        if self.same:
            return None
        return FindingsError(
            f"the artifact is not what {self.schedule} gives today, so its proof is not shown",
            hint="another version of mlagen, of its tools, of the schedule or of its templates, or "
            "an artifact that somebody changed",
        )


def prove_again(
    artifact: Artifact,
    *,
    schedule_file: str | None = None,
    templates: Path | str | None = None,
) -> Reproof:
    """Builds the artifact's schedule for the problem and knobs of its manifest, with its proof, and
    compares text, code and manifest with the artifact's.

    The schedule is a shipped one of the manifest's name, or the one in `schedule_file`: a manifest
    does not choose which file is executed. Raises ConfigError where neither is there, and what
    building raises: ProofError where an order is not established.
    """
    from mlagen.app.build import build_artifact
    from mlagen.app.summary import proof_text
    from mlagen.codegen.schedules import names

    manifest = artifact.manifest
    if schedule_file is None and manifest.kernel not in names():
        raise ConfigError(
            f"{manifest.kernel!r:.80} is no shipped schedule, so there is nothing to build again",
            hint="--problem FILE.py names the schedule's file, which is executed",
        )
    schedule = schedule_file or manifest.kernel
    again = build_artifact(
        schedule, manifest.problem, manifest.knobs, target=manifest.target, templates=templates
    )
    fields = [
        name for name in _LAUNCHED if getattr(manifest, name) != getattr(again.manifest, name)
    ]
    status = again.manifest.proof.status
    if manifest.proof.status != status:  # what else the proof says is not read
        fields.append("proof")
    same_code = artifact.code == again.code
    tools = ""
    if not same_code and manifest.tools != again.manifest.tools:
        tools = f"made by {_listed(manifest.tools)}; here {_listed(again.manifest.tools)}"
    return Reproof(
        schedule, status, proof_text(again.manifest), artifact.text == again.text, same_code,
        tuple(fields), tools,
    )  # fmt: skip


def _listed(tools: dict[str, str]) -> str:
    return " ".join(f"{name} {version}" for name, version in tools.items())
