"""A certificate authority of the tests' own: real certificates for real TLS on loopback."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """Signs certificates and writes them where ssl can read them."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._build(self._name, self._key.public_key(), [], ca=True)
        self.ca = directory / f"{name.replace(' ', '-')}.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _build(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, names: list[str], *, ca: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.KeyUsage(True, False, False, False, False, ca, ca, False, False), critical=True
            )
        )
        if names:
            general = [_general(name) for name in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(general), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def issue(self, common: str, *names: str) -> tuple[str, str]:
        """Make a certificate and give the files of it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._build(_name(common), key.public_key(), list(names), ca=False)
        where = self._directory / f"{common}.pem"
        secret = self._directory / f"{common}.key"
        where.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(where), str(secret)

    def server_context(self, name: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name, name))
        return context

    def client_context(self, pair: tuple[str, str] | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


def _general(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
