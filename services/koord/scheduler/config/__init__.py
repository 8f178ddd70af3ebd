"""The scheduler's configuration: ``KubeSchedulerConfiguration``, and the flags and gates beside it. Pure."""
