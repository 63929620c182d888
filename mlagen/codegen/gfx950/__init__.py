"""gfx950: the instruction table and the hazard table of the code generator."""
