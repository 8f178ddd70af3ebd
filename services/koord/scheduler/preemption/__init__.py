"""Which pods to take from which node so that a pod of higher priority fits: no I/O, the engine is the oracle."""
