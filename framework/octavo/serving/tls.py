"""HTTPS: the files of a certificate, checked before anything is loaded.

Knows files and TLS. Does not know HTTP.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from octavo.errors import ConfigError

if TYPE_CHECKING:
    from octavo.config.schema import ServerConfig


def tls_of(settings: ServerConfig) -> ssl.SSLContext | None:
    """Return what the server shows to its clients; None where it speaks plain HTTP.

    Raises ConfigError naming the setting whose file cannot be used. A key with a pass phrase is
    refused: a server starts with nobody there to type it.
    """
    chain, key, authorities = settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_ca_certs
    if chain is None:
        if key is not None or authorities is not None:
            name = "ssl-keyfile" if key is not None else "ssl-ca-certs"
            raise ConfigError(
                f"{name} is given without a certificate", "give it as well: --ssl-certfile FILE"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(chain, key, password=_refuse_phrase)
    except (OSError, ValueError) as error:
        where = f"'{chain}'" if key is None else f"'{chain}' with the key '{key}'"
        raise ConfigError(
            f"the certificate {where} cannot be used (ssl-certfile, ssl-keyfile)", _said(error)
        ) from error
    if authorities is not None:
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise ConfigError(
                f"the authorities '{authorities}' cannot be used (ssl-ca-certs)", _said(error)
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _refuse_phrase() -> str:
    raise ValueError("the key is protected by a pass phrase: give one without")


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not valid PEM, or key and certificate do not belong together: {error.reason}"
    strerror = getattr(error, "strerror", None)
    return strerror or str(error)
