"""Devices: which pools of them there are, which nodes reach them, and how claims get theirs (resource.k8s.io/v1)."""
