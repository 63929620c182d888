"""Attention operations said in the DSL, for schedules to arrange."""
