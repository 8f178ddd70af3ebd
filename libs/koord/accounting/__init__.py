"""Pure sums: what a pod asks for, which quota it belongs to, quota trees, takes and charges of the ledger."""
