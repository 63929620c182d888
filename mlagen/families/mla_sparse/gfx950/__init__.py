"""Top-k sparse MLA on gfx950."""
