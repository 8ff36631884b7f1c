"""What may be placed, checked before it is recorded: a placement that could never be composed is refused when it is made.

``host`` is on every machine and ``controller`` on its own from the mesh's founding on, without a row: placing them there changes nothing,
and neither can be removed.
"""

from collections.abc import Mapping
from datetime import datetime

from cryptography import x509
from pydantic import ValidationError

from mesh_runtime.contracts import BadName, Identity, Manifest, Refused, StoreAt
from mesh_runtime.contracts.manifest import needs_circle
from mesh_runtime.trust.keys import BadKey
from mesh_runtime.trust.sealing import PublicKey
from mesh_runtime_controller.catalog import Catalog
from mesh_runtime_controller.records import first_fault

#: Modules that the founding puts where they are.
FOUNDED = ("controller", "host")


def read_identity(module: str, machine: str) -> Identity | Refused:
    """The identity of a placement, or the refusal of a name that breaks the grammar."""
    try:
        return Identity(module, machine)
    except BadName as bad:
        return Refused(code="bad-name", why=str(bad))


def read_key(text: str) -> str | Refused:
    """A public key as it is recorded (64 hex digits, lower case; empty: none was given), or the refusal of what is none."""
    if not text.strip():
        return ""
    try:
        key = PublicKey.parse(text)
        key.seal(b"", b"")
    except BadKey as bad:
        return Refused(code="bad-key", why=f"{bad}; give the public half of the placement's X25519 key")
    return str(key)


def check_placement(
    catalog: Catalog, identity: Identity, parameters: Mapping[str, str], controller: Identity, now: datetime
) -> Refused | None:
    """Why this placement is refused, as far as it can be said without the inventory."""
    if identity.module in FOUNDED:
        if parameters:
            return Refused(code="bad-parameters", why=f"{identity.module} takes no parameters, {_listed(parameters)} given")
        if identity.module == "controller" and identity != controller:
            return Refused(code="seat-taken", why=f"the seat 'controller' has one holder in a mesh, and {controller} holds it")
        return None
    if identity.module not in catalog.manifests:
        return Refused(code="unknown-module", why=catalog.missing(identity.module))
    if (circle := needs_circle(_waited_for(catalog.manifests, identity.module))) is not None:
        words = " waits for ".join(circle)
        return Refused(code="needs-circle", why=f"{identity} would wait for ever for what it needs: {words}; one of them must need less")
    if identity.module == "store":
        return _check_store(parameters, now)
    return None


def _waited_for(manifests: Mapping[str, Manifest], module: str) -> list[Manifest]:
    """The manifests of a module and of all on whose grants it waits, at once or in turn: circles of others are no business of its."""
    found: dict[str, Manifest] = {}
    ahead = [module]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found[one] = manifests[one]
            types = {need.partition("/")[0] for need in manifests[one].needs}
            ahead += [name for name, other in manifests.items() if types & set(other.provides)]
    return list(found.values())


def _check_store(parameters: Mapping[str, str], now: datetime) -> Refused | None:
    missing, extra = {"address", "ca"} - parameters.keys(), parameters.keys() - {"address", "ca"}
    if missing or extra:
        given = f"missing: {_listed(missing)}; not known: {_listed(extra)}"
        return Refused(code="bad-parameters", why=f"a store takes exactly address (host:port) and ca (a certificate in PEM); {given}")
    try:
        StoreAt.model_validate(dict(parameters))
    except ValidationError as malformed:
        return Refused(code="bad-parameters", why=first_fault(malformed))
    if "PRIVATE KEY" in parameters["ca"]:
        return Refused(code="bad-parameters", why="ca: it holds a private key; give the certificate alone, and draw a new key")
    try:
        certificates = x509.load_pem_x509_certificates(parameters["ca"].encode())
        faults = [fault for one in certificates if (fault := _fault_of(one, now))]
    except (ValueError, x509.DuplicateExtension, x509.InvalidVersion, x509.UnsupportedGeneralNameType):
        return Refused(code="bad-parameters", why="ca: it is no certificate in PEM (-----BEGIN CERTIFICATE-----) that can be read")
    return Refused(code="bad-parameters", why=f"ca: {faults[0]}") if faults else None


def _fault_of(certificate: x509.Certificate, now: datetime) -> str:
    whose = f"the certificate of {certificate.subject.rfc4514_string()!r}"
    try:
        if not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return f"{whose} is not one of a CA"
    except x509.ExtensionNotFound:
        return f"{whose} is not one of a CA"
    ended = certificate.not_valid_after_utc
    return f"{whose} has expired at {ended.isoformat()}" if ended < now else ""


def _listed(names: object) -> str:
    return ", ".join(sorted(map(str, names))) if isinstance(names, set | frozenset | Mapping) and names else "nothing"
