"""jinja2 templates, a folder a target: the skeleton, and one file an operation."""
