"""What every service shares: settings, lifecycle, health and readiness, leader lease, event loop."""
