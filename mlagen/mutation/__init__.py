"""Mutation of generated kernels: how many defects the emulator and its sanitizer notice.

Defects are made in the assembly text of an artifact, assembled, and run as plain binaries. What is
judged is the checker, so the generator's own proof is asked nothing. Mutants of values (class
"values") judge the data and the oracles of `mlagen verify`.
"""

from mlagen.mutation.campaign import (
    CLASSES,
    ORDER,
    Report,
    make_mutants,
    missed_files,
    mutate,
    sample,
)
from mlagen.mutation.judge import Judge, Verdict
from mlagen.mutation.listing import Listing, read_listing
from mlagen.mutation.mutant import Mutant, apply
from mlagen.mutation.value_judge import ValueJudge

__all__ = [
    "CLASSES",
    "ORDER",
    "Judge",
    "Listing",
    "Mutant",
    "Report",
    "ValueJudge",
    "Verdict",
    "apply",
    "make_mutants",
    "missed_files",
    "mutate",
    "read_listing",
    "sample",
]
