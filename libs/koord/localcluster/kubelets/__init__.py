"""Fake kubelets: thousands of nodes that look alive and walk the pods bound to them through their phases."""
