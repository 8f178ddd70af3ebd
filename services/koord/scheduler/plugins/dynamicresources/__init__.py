"""DynamicResources: pods with claims on devices."""
