"""Whole jobs planned by a plugin."""
