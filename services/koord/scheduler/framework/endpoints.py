"""What plugins show of themselves over HTTP: ``/apis/v1/plugins/<plugin>/...`` (spec 10 section 2.11)."""

import abc
from collections.abc import Callable, Mapping

from koord.scheduler.framework.contract import Plugin

Parameters = Mapping[str, str]
"""What stands for the ``{names}`` of the pattern, and the values of the query."""
Endpoint = Callable[[Parameters], object]
"""Answers what is shown: mappings, lists, numbers, texts. It runs on the event loop: microseconds, and a bounded
answer. EndpointError: there is nothing to show."""


class EndpointError(Exception):
    """An answer that is an error: an HTTP ``status`` and a text for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class EndpointPlugin(Plugin):
    """Shows something of itself. Of plugins with one name in several profiles the first profile's is asked."""

    @abc.abstractmethod
    def endpoints(self) -> Mapping[str, Endpoint]:
        """By pattern below the plugin's own path: ``nodes/{node}``."""
