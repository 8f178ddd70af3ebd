"""CPUs and NUMA nodes of one machine: which are free, which to take, how amounts are split (spec 10 3.12, 3.14)."""
