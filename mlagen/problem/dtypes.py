"""Element types as numbers alone, for whoever needs no arrays: a build loads no numpy."""

E4M3_MAX = 448.0  # the largest e4m3fn number (OCP 8-bit floating point 1.0)
