"""MLA decode on Blackwell: operations for a schedule to arrange."""
