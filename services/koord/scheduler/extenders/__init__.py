"""Extenders: webhooks of a KubeSchedulerConfiguration that filter, rate, preempt and bind beside the plugins."""
