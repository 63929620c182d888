"""AITER's persistent MLA prefill as an artifact, so that our host code launches it."""

from __future__ import annotations

from aiter import object_file

from mlagen.artifact import Arg, Artifact, GridDim, Manifest, Proof, Resources, sha256
from mlagen.attention.prefill.facts import PrefillFacts
from mlagen.binary import load_code_object
from mlagen.codegen.manifest import plain_facts
from mlagen.families.mla_prefill.gfx950.form import aiter_signature
from mlagen.families.mla_prefill.problem import MlaConfigV2


def aiter_config(heads: int, mask: str) -> MlaConfigV2:
    """A problem that it solves. Its row maxima never lag."""
    return MlaConfigV2(
        heads, heads, mask=mask, dtype="fp8_e4m3", output_dtype="bf16", ragged=True, page_size=1,
        rescale_threshold=0.0,
    )  # type: ignore[arg-type]  # fmt: skip


def aiter_artifact(config: MlaConfigV2) -> Artifact:
    """The object for the mask of `config`; the calling test skips where it is not there."""
    causal = int(config.mask.name == "causal")
    path = f"mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal{causal}.co"
    code = object_file(path).read_bytes()
    kernel, taken = load_code_object(code).kernel(), aiter_signature(config)
    manifest = Manifest(
        kernel="AITER's",
        symbol=kernel.name,
        target="gfx950",
        family="mla_prefill",
        problem_type="MlaProblem",
        problem=config.parts()[0].to_fields(),
        schedule_file=path,
        knobs=config.parts()[1],
        args=tuple(
            Arg(a.name, a.offset, a.size, a.kind, a.access, a.dtype) for a in taken.arguments
        ),
        kernarg_bytes=kernel.kernarg_bytes,
        block=taken.block,
        grid=(GridDim("workgroups", 1),),
        resources=Resources(256, 0, 96, 163840, 0, 0, 0),
        proof=Proof("proved"),  # not ours to say: lets the launcher run it
        tools={},
        flags=(),
        text_sha256=sha256(""),
        code_sha256=sha256(code),
        source=(),
        facts=plain_facts(PrefillFacts.of(config, "aiter")),
    )
    return Artifact(manifest, code, "")
