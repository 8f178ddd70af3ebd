"""What a scheduler shows of its state over HTTP: nodes, plugins, why a pod waits, what is configured, debug flags."""
