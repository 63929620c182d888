"""The corpus: every kernel of this folder with one launch, its inputs and its reference.

Importing this needs Triton. Shapes are small: a few blocks, so that an emulator takes seconds.
"""

from __future__ import annotations

from corpus_gluon import CASES as GLUON
from corpus_matrices import CASES as MATRICES
from corpus_vectors import CASES as VECTORS

CASES = (*VECTORS, *MATRICES, *GLUON)
"""All cases; their names differ."""
