"""What /metrics answers: plain text to whoever asks for nothing, OpenMetrics with start times to Prometheus."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from koord.telemetry.metrics import counter, exposition, render

# As Prometheus 3 sends it when it may not have protobuf.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


def test_plain_text_unless_asked() -> None:
    for accept in ("", "*/*", "text/plain"):
        body, kind = exposition(accept)
        assert kind.startswith("text/plain; version=0.0.4")
        assert body.split(b"\n")[0] == render().split(b"\n")[0]


def test_prometheus_is_told_since_when_a_series_counts() -> None:
    counter("koord_exposed", "For this test", ("kind",)).labels("a").inc()
    body, kind = exposition(PROMETHEUS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}  # type: ignore[no-untyped-call]
    samples = {sample.name: sample for sample in families["koord_exposed"].samples}
    assert samples["koord_exposed_total"].value == 1
    assert samples["koord_exposed_created"].labels == {"kind": "a"}
    # What is a start time is no metric of its own.
    assert "koord_exposed_created" not in families
