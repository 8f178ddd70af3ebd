"""The cluster as NumPy columns: interned names, row allocation, resource vectors."""
