"""Merging partial results on Hopper: operations for a schedule to arrange."""
