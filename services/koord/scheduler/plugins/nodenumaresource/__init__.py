"""NodeNUMAResource: CPUs of one's own, alignment to NUMA nodes, amplified nodes (spec 10 sections 3.12 and 3.14).

The pure parts are in ``koord.scheduler.numa``; here they are kept per node, laid out as columns for all nodes at once,
and asked through the plugin contract.
"""
