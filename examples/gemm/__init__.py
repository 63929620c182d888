"""A matrix product as mlagen sees any problem: a config, operations, templates and oracles."""
