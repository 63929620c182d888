"""What all pages and pictures share: one palette, one legend, light and dark, basic rules of CSS."""

from mlagen.pages.style import PALETTE, Colour, legend, shades, style

__all__ = ["PALETTE", "Colour", "legend", "shades", "style"]
