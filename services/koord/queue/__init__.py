"""Holds whole jobs until their quota chain has room, then resumes them."""
