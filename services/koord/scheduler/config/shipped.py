"""The configuration that Koordinator's chart ships (spec 10 section 2.2), read by the same reader as everybody's."""

from importlib.resources import files

from koord.scheduler.config.model import SchedulerConfiguration
from koord.scheduler.config.reading import read

_FILE = "shipped.yaml"


def shipped_text() -> str:
    """The file as it ships."""
    return files("koord.scheduler.config").joinpath(_FILE).read_text(encoding="utf-8")


def shipped(*, job_preemption: bool = True) -> SchedulerConfiguration:
    """What it says. ``job_preemption`` is the chart's value ``scheduler.enableJobPreemption``.

    With it gangs preempt as a whole and DefaultPreemption is not among the postFilter plugins; without it it is.
    """
    text = shipped_text()
    if not job_preemption:
        text = text.replace("enablePreemption: true", "enablePreemption: false")
        listed = "          - name: ElasticQuota  # the last of postFilter\n"
        assert listed in text, f"{_FILE} has lost its mark"
        text = text.replace(listed, f"{listed}          - name: DefaultPreemption\n")
    return read(text, source=_FILE)
