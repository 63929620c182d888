"""What only Python does for the engine: launches, memory, findings in words."""
