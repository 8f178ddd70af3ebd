"""A real Kubernetes control plane as child processes: etcd, kube-apiserver and, on request, what stands around them.

The binaries are given (a folder); who builds them is not this room's business. Everything listens on loopback, speaks
TLS with certificates of an authority of its own, and ends with the process that started it.
"""
