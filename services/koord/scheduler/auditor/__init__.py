"""The workload auditor: how single workloads fare on their way to a node, measured and complained about.

Off by default (spec 10 section 3.9). Records are kept per pod that waits, or per gang group, while they wait.
"""
