"""Kubernetes as data: typed views, quantities, selectors, protocol keys, job kinds and CRDs; no I/O, no clock."""
