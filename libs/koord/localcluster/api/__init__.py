"""The embedded Kubernetes API server: what koord, kubectl and stand-in components talk to when there is no cluster.

Reads top-down: `server` (process and HTTPS), `app` (HTTP to operations), `operations` (what a write means), `store` and
`watchcache` (objects as bytes, versions, watches). `docs/embedded-api.md` says what it is and what it is not.
"""
