"""The placement engine: the cluster as columns, classes of equal pods, and the loop that places them. Pure, no I/O."""
