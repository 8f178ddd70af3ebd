"""Structural schemas: what fields objects have, and from that pruning, defaults, validation and strict decoding.

One model (`model`) serves both sources: the schemas of CustomResourceDefinitions and the facts of built-in kinds, which
`tools/schemas.py` takes from a real server.
"""
