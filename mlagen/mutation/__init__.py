"""Mutation of kernels: how many defects the checkers notice.

A defect is made in the text of a kernel, which then runs as anybody's. What is judged are the
checkers: of gfx950 the emulator and its sanitizer, of PTX these and the audit. So the generator's
own proof is asked nothing. Mutants of values (class "values") judge the data and the oracles of
`mlagen verify`.

mutate(ArtifactSource(artifact), count=20)
"""

from mlagen.mutation.campaign import CampaignReport, missed_files, mutate, sample
from mlagen.mutation.source import ArtifactSource
from mlagen.mutation.subject import Subject, SubjectSource
from mlagen.mutation.verdict import Planted, Verdict

__all__ = [
    "ArtifactSource",
    "CampaignReport",
    "Planted",
    "Subject",
    "SubjectSource",
    "Verdict",
    "missed_files",
    "mutate",
    "sample",
]
