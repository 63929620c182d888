"""MLA decode on gfx950."""
