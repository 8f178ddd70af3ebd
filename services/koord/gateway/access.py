"""How to reach the API server: address, TLS and the credentials of the moment.

Both HTTP clients of the gateway (the watching session and the lean writer) read the same object, so a token that is
renewed takes effect for both with the next request.
"""

import asyncio
import ssl as ssl_module
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit


class AccessError(ValueError):
    """The API server cannot be addressed as configured; names the source and the rule."""


class ApiAccess:
    """One API server. ``prefix`` is a base path without trailing slash (``""`` for most servers).

    ``authorization`` is the value of that header, or empty. ``renew`` replaces it (exec credentials, mounted service
    account tokens); it is called each minute and after a 401.
    """

    def __init__(
        self,
        url: str,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_name: str = "",
        authorization: str = "",
        renew: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AccessError(f"API server address {url!r}: must be http(s)://host[:port][/path]")
        self.secure = parts.scheme == "https"
        if self.secure and ssl is None:
            ssl = ssl_module.create_default_context()
        self.ssl = ssl if self.secure else None
        self.host = parts.hostname
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")
        self.server_name = server_name
        self.authorization = authorization
        self._renew = renew
        self._renewing = asyncio.Lock()

    @property
    def authority(self) -> str:
        """Host and port as they appear in a URL and in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The base address, without a trailing slash."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"

    @property
    def renewable(self) -> bool:
        """Whether the credentials can be fetched again."""
        return self._renew is not None

    async def renew(self) -> bool:
        """Fetch the credentials again; True if they changed."""
        if self._renew is None:
            return False
        async with self._renewing:
            fresh = await self._renew()
            changed = fresh != self.authorization
            self.authorization = fresh
            return changed
