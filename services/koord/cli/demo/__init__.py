"""The demo: a cluster, quotas, queues and 200 jobs, shown live, and a checker that trusts none of the services."""
