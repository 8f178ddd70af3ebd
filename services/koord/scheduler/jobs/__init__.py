"""Whole jobs planned by a plugin, and which pod comes next (spec 10 sections 3.4 and 3.10b)."""
