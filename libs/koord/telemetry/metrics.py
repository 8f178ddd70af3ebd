"""Prometheus metrics, made once per process: asking for a metric that exists answers the same one.

prometheus_client refuses a second registration of a name, which would forbid building a service twice in one test
process; the cache here makes declaration idempotent and keeps names in the code that owns them.
"""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector

REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)

# From half a millisecond to half a minute: claims at one end, gang waits at the other.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_made: dict[str, Counter | Gauge | Histogram] = {}


class MetricError(ValueError):
    """One name asked for as two kinds of metric."""


def counter(name: str, summary: str, labels: Sequence[str] = ()) -> Counter:
    """A counter (Prometheus adds ``_total``)."""
    made = _made.get(name)
    if made is None:
        made = _made[name] = Counter(name, summary, labels, registry=REGISTRY)
    if not isinstance(made, Counter):
        raise MetricError(f"{name}: already a {type(made).__name__}, asked for as a Counter")
    return made


def gauge(name: str, summary: str, labels: Sequence[str] = ()) -> Gauge:
    """A gauge."""
    made = _made.get(name)
    if made is None:
        made = _made[name] = Gauge(name, summary, labels, registry=REGISTRY)
    if not isinstance(made, Gauge):
        raise MetricError(f"{name}: already a {type(made).__name__}, asked for as a Gauge")
    return made


def histogram(name: str, summary: str, labels: Sequence[str] = (), buckets: Sequence[float] = SECONDS) -> Histogram:
    """A histogram; the buckets are upper bounds in the metric's unit."""
    made = _made.get(name)
    if made is None:
        made = _made[name] = Histogram(name, summary, labels, buckets=buckets, registry=REGISTRY)
    if not isinstance(made, Histogram):
        raise MetricError(f"{name}: already a {type(made).__name__}, asked for as a Histogram")
    return made


def render() -> bytes:
    """The plain text format of ``/metrics``."""
    return generate_latest(REGISTRY)


def exposition(accept: str) -> tuple[bytes, str]:
    """What ``/metrics`` answers to a header ``Accept``: the body and its Content-Type.

    Prometheus asks for OpenMetrics, where ``_created`` is the time since which a series counts and no metric of its
    own: only with it does the first observation of a series (a queue's first job) show in a rate.
    """
    encode, kind = choose_encoder(accept)
    return encode(REGISTRY), kind
