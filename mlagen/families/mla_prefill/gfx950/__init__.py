"""MLA prefill on gfx950: what it says to streamed prefill."""
