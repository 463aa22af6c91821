"""TLS contexts of clients and servers, and the certificate of the peer."""

import os
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

from mcpearl.runtime.arguments import Unusable

PathLike = str | os.PathLike[str]


class Tls(NamedTuple):
    """TLS settings of a client.

    >>> Client("tls://db.example:9000", tls=Tls(ca="ca.pem", certificate="me.pem", key="me.key"))
    """

    ca: PathLike | None = None
    """File of the trusted certificate authorities; by default the system's roots."""
    certificate: PathLike | None = None
    """File of the client's certificate, for a server that requests one."""
    key: PathLike | None = None
    """File of the certificate's private key, if it is not in the certificate's file."""


def client_context(
    tls: Tls | ssl.SSLContext | None, protocols: Sequence[str] = ()
) -> ssl.SSLContext:
    """Return the context of a client that offers `protocols` (ALPN). A given context is unchanged."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    tls = tls or Tls()
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise ValueError(f"cannot trust the certificates in {str(tls.ca)!r}: {error}") from None
    if tls.certificate is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except OSError as error:
            raise ValueError(
                f"cannot use the certificate in {str(tls.certificate)!r}: {error}"
            ) from None
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def trusting_context(tls: Tls | ssl.SSLContext, protocols: Sequence[str] = ()) -> ssl.SSLContext:
    """Return a context that trusts the same authorities and the system's, but has no certificate."""
    context = ssl.create_default_context()
    if isinstance(tls, ssl.SSLContext):
        authorities = b"".join(tls.get_ca_certs(binary_form=True))
        if authorities:
            context.load_verify_locations(cadata=authorities)
    elif tls.ca is not None:
        context.load_verify_locations(tls.ca)
    if protocols:
        context.set_alpn_protocols(protocols)
    return context


def server_context(
    certificate: PathLike | None,
    key: PathLike | None,
    client_ca: PathLike | None,
    *,
    optional: bool = False,
) -> ssl.SSLContext | None:
    """Return the context of a server, or None without TLS.

    With `client_ca`, clients need a certificate of that authority. If the certificate is `optional`, a
    client can connect without one, so that a later check can refuse it with a reason.
    """
    if certificate is None:
        if key is not None or client_ca is not None:
            raise Unusable("`key` and `client_ca` need a `certificate`: without it there is no TLS")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load_certificate(context, certificate, key)
    if client_ca is not None:
        _check_readable("client_ca", client_ca)
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError:
            raise Unusable(f"`client_ca`: {str(client_ca)!r} has no certificate in PEM") from None
        context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED
    return context


def _load_certificate(context: ssl.SSLContext, certificate: PathLike, key: PathLike | None) -> None:
    _check_readable("certificate", certificate)
    if key is not None:
        _check_readable("key", key)

    def refuse_password() -> str:
        # Otherwise OpenSSL would ask for it at the terminal, and a service would wait forever.
        raise Unusable(
            f"`key`: {str(key or certificate)!r} is protected by a password; give a key without one"
        )

    try:
        context.load_cert_chain(certificate, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"the key in {str(key)!r} is not that of the certificate in"
            raise Unusable(f"`key`: {reason} {str(certificate)!r}") from None
        if key is None:
            reason = f"{str(certificate)!r} must have a certificate and its key in PEM"
            raise Unusable(f"`certificate`: {reason}; give the key's own file as `key`") from None
        reason = f"{str(certificate)!r} must have a certificate in PEM, and {str(key)!r} its key"
        raise Unusable(f"`certificate`: {reason}") from None


def _check_readable(option: str, path: PathLike) -> None:
    """Raise `Unusable` with the name of a file that cannot be read."""
    try:
        with open(path, "rb"):  # noqa: PTH123 (the path may be a `str`)
            pass
    except OSError as error:
        raise Unusable(f"`{option}`: cannot read {str(path)!r}: {error.strerror}") from None


def subject_of(transport: Any) -> str | None:
    """Return the subject of the peer's verified certificate, such as `CN=alice,O=Example`."""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return None
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None:
        return None
    from cryptography import x509

    return x509.load_der_x509_certificate(certificate).subject.rfc4514_string()


def certificate_of(transport: Any) -> str | None:
    """Return the peer's verified certificate in PEM, or None if it presented none."""
    tls = transport.get_extra_info("ssl_object")
    der = None if tls is None else tls.getpeercert(binary_form=True)
    return None if der is None else ssl.DER_cert_to_PEM_cert(der)
