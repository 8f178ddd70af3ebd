"""Stand-in operators: they turn batch Jobs, TFJobs, PyTorchJobs and RayJobs into pods as the real operators do."""
