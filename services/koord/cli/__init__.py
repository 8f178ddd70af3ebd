"""The user's tools: demo, up, run, submit, get, explain, trace, bench."""
