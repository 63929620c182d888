"""Merging partial results on Hopper and Blackwell: operations for a schedule to arrange."""
