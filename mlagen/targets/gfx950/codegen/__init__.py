"""Schedules whose roles share one stream of clusters, to the text of a `.s`."""
