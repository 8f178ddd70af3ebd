"""Telemetry of one process, set up from the OTEL_* environment."""

import os
from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource

from koord.telemetry.export import Exporter, endpoint_configured
from koord.telemetry.spans import Spans

# A pod of its own is one of thousands a minute; unless OTEL_* says otherwise, one in a hundred is traced.
POD_RATIO = 0.01


class Telemetry:
    """Spans of a process and their exporter (None when OTEL_* names no endpoint: then nothing is recorded)."""

    def __init__(self, spans: Spans, exporter: Exporter | None) -> None:
        self.spans = spans
        self.exporter = exporter

    def start(self) -> None:
        """Begin to export, on the running loop."""
        if self.exporter is not None:
            self.exporter.start()

    async def shutdown(self) -> None:
        """Send what is left."""
        if self.exporter is not None:
            await self.exporter.stop()


class TelemetryError(ValueError):
    """An OTEL_* variable that does not parse; names it and the rule."""


def sampling_ratios(environ: Mapping[str, str]) -> tuple[float, float]:
    """Shares of new traces to record, of jobs and of single pods, by OTEL_TRACES_SAMPLER and its _ARG.

    Without them every job and one pod in a hundred; an explicit sampler counts for both.
    """
    sampler = environ.get("OTEL_TRACES_SAMPLER")
    if sampler is None:
        return 1.0, POD_RATIO
    if sampler.endswith("always_on"):
        return 1.0, 1.0
    if sampler.endswith("always_off"):
        return 0.0, 0.0
    if not sampler.endswith("traceidratio"):
        raise TelemetryError(f"OTEL_TRACES_SAMPLER: {sampler!r} is not one of the samplers of the specification")
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise TelemetryError(f"OTEL_TRACES_SAMPLER_ARG: must be a number from 0 to 1, got {text!r}")
    return ratio, ratio


def setup(service: str, instance: str, cluster: str = "") -> Telemetry:
    """Telemetry for this process; call :meth:`Telemetry.start` once the loop runs."""
    enabled = endpoint_configured()
    ratio, pod_ratio = sampling_ratios(os.environ)
    spans = Spans(enabled=enabled, ratio=ratio, pod_ratio=pod_ratio)
    if not enabled:
        return Telemetry(spans, None)
    resource = Resource.create(
        {
            "service.namespace": "koord",
            "service.name": f"koord-{service}",
            "service.instance.id": instance,
            **({"k8s.cluster.name": cluster} if cluster else {}),
        }
    )
    return Telemetry(spans, Exporter(spans, resource))
