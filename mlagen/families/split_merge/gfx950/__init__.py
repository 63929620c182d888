"""Merging partial results on gfx950: operations for a schedule to arrange."""
