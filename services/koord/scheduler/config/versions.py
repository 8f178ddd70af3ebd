"""Group, versions and kind of the file. Older versions are read as v1, where their fields are the same."""

GROUP = "kubescheduler.config.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta3", f"{GROUP}/v1beta2")
KIND = "KubeSchedulerConfiguration"
