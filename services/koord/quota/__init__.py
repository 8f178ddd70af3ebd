"""Elastic quota trees: limits written to the ledger, used and request written back to the objects."""
