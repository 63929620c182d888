"""Top-k sparse MLA on Hopper: operations for a schedule to arrange."""
