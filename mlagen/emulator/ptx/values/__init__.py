"""What instructions do to registers: 32 lanes at a time."""
