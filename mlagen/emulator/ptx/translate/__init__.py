"""PTX instructions to the rows that the engine executes: one module a class of instruction."""
