"""Mutants of gfx950's assembly text: assembled, and run as plain binaries.

What is judged is the emulator with its sanitizer, so the generator's own proof is asked nothing.
Mutants of values (class "values") judge the data and the oracles of `mlagen verify`.
"""

# What the emulator and its sanitizer must see.
ORDER = ("waits", "barriers", "nops", "swizzle")
