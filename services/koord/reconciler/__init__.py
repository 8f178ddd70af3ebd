"""Folds API objects into the ledger and ends records on what the API shows."""
