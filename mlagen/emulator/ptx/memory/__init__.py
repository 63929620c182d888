"""State spaces, loads, stores, atomics, matrices of bytes, and what lanes of a warp exchange."""
