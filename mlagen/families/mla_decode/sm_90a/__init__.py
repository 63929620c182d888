"""MLA decode on Hopper: operations for a schedule to arrange."""
