"""Executing PTX on the host: every warp of a cluster, its asynchronous agents, and a sanitizer."""
