"""Merging the partial results of split work, of MLA prefill and of MLA decode."""
