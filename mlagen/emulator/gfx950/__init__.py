"""The gfx950 engine: translation of instructions to rows, and their compiled execution."""
