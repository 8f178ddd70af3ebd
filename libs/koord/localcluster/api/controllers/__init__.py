"""What kube-controller-manager does for objects of every kind: collect garbage, empty namespaces, count disruptions.

They live in the server's process, hear of writes from the store itself and write through `ClusterApi`, as the job
operators do. None of them looks at all objects once it runs.
"""
