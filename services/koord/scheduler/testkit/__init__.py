"""For authors of plugins: a scheduler without services, and the contract checked on whatever a test makes of it."""
