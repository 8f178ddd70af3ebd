"""The outside world on one machine: nats-server, redis-server, API server, fake kubelets, operators, trace store."""
