"""What the families of prefill bring to tools alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from mlagen.family import Family, LadderCase, MutantInputs

if TYPE_CHECKING:
    from mlagen.artifact import Artifact
    from mlagen.attention.prefill.verification import PrefillKind

# Tokens of the two runs of a ladder. 3072 apart: whole iterations of any number of LDS slots.
_LENGTHS = (1024, 4096)


class PrefillFamily(Family):
    """A family of prefill. `beside`: for each dtype AITER's kernel of the same problem."""

    beside: ClassVar[Mapping[str, str]]

    def kind(self, problem_type: str) -> PrefillKind:
        raise NotImplementedError

    def mutants(self, artifact: Artifact) -> MutantInputs:
        """One workgroup whose inputs show every tile."""
        from mlagen.attention.prefill.mutants import PrefillMutants

        return PrefillMutants(self.kind(artifact.manifest.problem_type), artifact)

    def ladders(self) -> tuple[LadderCase, ...]:
        """One head, nothing masked, beside AITER's kernels."""
        config_type = self.kind("").config_type
        kernel, cases = config_type.kernel, []
        for dtype, other in self.beside.items():
            fields = {"num_heads": 1, "num_kv_heads": 1, "mask": "null", "dtype": dtype}
            config = config_type.from_fields(fields)
            cases.append(
                LadderCase(
                    kernel if dtype == "bf16" else f"{kernel} {dtype.partition('_')[0]}",
                    kernel,
                    fields,
                    {n: {"batch": 1, "seq_len": n, "num_keys": n} for n in _LENGTHS},
                    (config.q_tile, config.kv_block),
                    (config.qk_width, config.v_width),
                    other,
                )
            )
        return tuple(cases)
