"""Mutants of PTX text, of kernels that anyone made: judged by emulator, audit and both.

A mutant is PTX that an assembler takes. It runs on the calls of `mlagen verify`, or as a launch
file says; a stranger's kernel is judged by what the text itself gives.
"""

# What the emulator, its sanitizer and the audit must see.
ORDER = ("waits", "arrivals", "fences", "barriers", "registers", "phases", "descriptors", "copies",
         "swizzle")  # fmt: skip
