"""Benchmarks of the whole system, from a created pod to a bound one."""
