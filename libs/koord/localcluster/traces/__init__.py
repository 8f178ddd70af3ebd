"""The local trace store: a small OTLP/HTTP receiver that keeps the newest 256 MiB of spans and answers by trace id.

It is for one machine and for tests; production sends OTLP to a real backend.
"""
