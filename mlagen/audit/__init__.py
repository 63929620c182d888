"""Static checks of generated code, without running it."""
