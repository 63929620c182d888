"""One folder a target: limits, its own words, code generation, assembling."""
