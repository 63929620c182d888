"""What all pages and pictures share: one palette and legend, light and dark, basic CSS."""

from mlagen.pages.style import PAGE, PALETTE, Colour, legend, shades, style

__all__ = ["PAGE", "PALETTE", "Colour", "legend", "shades", "style"]
