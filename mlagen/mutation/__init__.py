"""Mutation of generated kernels: how many defects the emulator and its sanitizer notice.

Defects are made in the assembly text of an artifact, assembled, and run as plain binaries. What is
judged is the checker, so the generator's own proof is asked nothing.
"""

from mlagen.mutation.campaign import (
    CLASSES,
    Report,
    make_mutants,
    missed_files,
    mutate,
    sample,
)
from mlagen.mutation.judge import Judge, Verdict
from mlagen.mutation.listing import Listing, read_listing
from mlagen.mutation.mutant import Mutant, apply

__all__ = [
    "CLASSES",
    "Judge",
    "Listing",
    "Mutant",
    "Report",
    "Verdict",
    "apply",
    "make_mutants",
    "missed_files",
    "mutate",
    "read_listing",
    "sample",
]
