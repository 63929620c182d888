"""The tracer of NaN and Inf, on Python's side: formats of operands, state arrays, the report."""
