"""MLA prefill in the expanded form, 192 / 128."""
