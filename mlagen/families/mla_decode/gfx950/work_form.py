"""How a kernel of MLA decode on gfx950 gets its work: one item a workgroup, several, or AITER's."""

from __future__ import annotations

from dataclasses import dataclass

from mlagen.dsl import Signature
from mlagen.errors import ConfigError
from mlagen.families.mla_decode.gfx950.aiter_arguments import aiter_signature, refuse_aiter
from mlagen.families.mla_decode.gfx950.form import signature
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.targets.gfx950.dsl import EntryRegisters, Space


@dataclass(frozen=True, slots=True)
class WorkForm:
    """`persistent`: a workgroup takes several items after each other; `aiter`: they and all
    arguments are those of AITER's persistent kernels."""

    persistent: bool
    aiter: bool

    @property
    def work(self) -> str:
        """The operation that begins a persistent workgroup."""
        return "aiter_work" if self.aiter else "work"

    def signature(self, k: MlaDecodeConfig) -> Signature:
        """What the host passes."""
        return aiter_signature(k) if self.aiter else signature(k, persistent=self.persistent)

    def entry(self, s: Space) -> EntryRegisters:
        """Declares the registers that the kernel starts with."""
        if self.persistent:
            return s.entry("workgroup", temporaries=4, items=True)
        return s.entry("work item", temporaries=4)


ONE_ITEM = WorkForm(persistent=False, aiter=False)


def work_form_of(k: MlaDecodeConfig, s: Space) -> WorkForm:
    """The form, by two knobs. ConfigError for a problem that it is not for."""
    persistent = s.choice("persistent", 0, 1, comment="a workgroup takes several work items")
    arguments = s.choice("arguments", "mlagen", "aiter", comment="whose: for host code of AITER's")
    aiter = arguments == "aiter"
    if aiter and not persistent:
        raise ConfigError(
            "arguments=aiter: AITER's arguments are those of its persistent MLA decode",
            hint="persistent=1; or arguments=mlagen",
        )
    if aiter:
        refuse_aiter(k)
    return WorkForm(bool(persistent), aiter)
