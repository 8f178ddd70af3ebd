"""The shared NumPy table: interned names, rows with reuse, and resource vectors laid out [field][row]."""
