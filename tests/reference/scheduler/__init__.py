"""The scheduler's rules, one pod and one node at a time, straight from spec 10 sections 3.3, 3.13 and 3.15.

Slow and plain on purpose: dictionaries as the API sends them, Python's whole numbers, no NumPy, nothing of koord's.
What the engine answers is compared with what these answer (tests/scheduler/comparison).
"""
