"""The TLS of an extender as client-go makes it of ``tlsConfig`` and ``enableHTTPS``."""

import base64
import os
import ssl

from koord.scheduler.config.errors import ConfigError, Problem
from koord.scheduler.config.extenders import ExtenderConfig, ExtenderTLS


def context_of(config: ExtenderConfig) -> ssl.SSLContext:
    """What connections of https are made with. ConfigError names the field whose file or data is of no use.

    ``enableHTTPS`` without anybody to trust trusts everybody, as upstream does; without ``enableHTTPS`` and without a
    ``tlsConfig`` the system's authorities are trusted.
    """
    tls = config.tls or ExtenderTLS()
    context = ssl.create_default_context()
    where = f"{config.path}.tlsConfig"
    if tls.insecure or (config.enable_https and not tls.has_ca):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.has_ca:
        context = _trusting(tls, where)
    if tls.cert_file or tls.cert_data:
        _load_certificate(context, tls, where)
    return context


def _trusting(tls: ExtenderTLS, where: str) -> ssl.SSLContext:
    field = f"{where}.{'caData' if tls.ca_data else 'caFile'}"
    try:
        if tls.ca_data:
            return ssl.create_default_context(cadata=base64.b64decode(tls.ca_data).decode("ascii"))
        return ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError([Problem(field, f"no certificates to trust: {_why(error)}")]) from error


def _load_certificate(context: ssl.SSLContext, tls: ExtenderTLS, where: str) -> None:
    """Python loads certificates from files only, so data is in one that is in memory, for a moment: where services run
    nothing may be written to disk."""
    files: list[int] = []
    try:
        paths: list[str] = []
        for data, path in ((tls.cert_data, tls.cert_file), (tls.key_data, tls.key_file)):
            if data:
                files.append(os.memfd_create("koord-extender"))
                os.write(files[-1], base64.b64decode(data))
            paths.append(f"/proc/self/fd/{files[-1]}" if data else path)
        context.load_cert_chain(*paths)
    except (OSError, ValueError) as error:
        field = f"{where}.{'certData' if tls.cert_data else 'certFile'}"
        raise ConfigError([Problem(field, f"no certificate with its key: {_why(error)}")]) from error
    finally:
        for file in files:
            os.close(file)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
