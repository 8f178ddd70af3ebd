"""The workload auditor."""
