"""The public plugin contract of the scheduler, and how a profile of plugins is put together."""
