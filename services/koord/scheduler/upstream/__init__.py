"""``koord bench upstream-…``: the workloads of kube-scheduler's own benchmark, on our engine with claims."""
