"""MLA decode in the absorbed form, 576 / 512."""
