"""Manifests to what the broker must hold: exchanges, logins, permissions, topic permissions, policies. Pure; writes nothing.

Each pattern is anchored at both ends, every login has a topic permission on *every* mesh exchange (a missing row would mean
*everything*), and identities are escaped literally, since RabbitMQ's own ``{username}`` inserts unescaped text. No runtime may write
``amq.default``. The test plugin and the beds put this into a vhost by the management API; later the broker module does. Source:
RabbitMQ guides *Access Control* and *Topic Authorisation*; the tables of ``docs/design``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest

_HEX = "[0-9a-f]{32}"
_NOTHING = "^$"
_ANY_ID = "[a-z0-9-]+@[a-z0-9-]+"
_PARKED_ACT = re.escape(wire.PARKED_ACT)
_REPLY_KEY = re.compile(rf"({_ANY_ID})\.{_HEX}\Z")

#: Deliveries after which a quorum queue drops a message: every lost connection counts one for each prefetched message, handled or not.
DELIVERY_LIMIT = 100

#: The same of what is parked, where each look counts one. It is never reached: a tell is parked for a person, and dropped by nobody else.
#: No limit at all would be 20 on RabbitMQ 4.0, and -1 is refused by 3.10.
PARKED_LIMIT = 1_000_000_000

#: The module that operators' commands log in as.
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class TopicRight:
    """Routing keys that a login may write to and bind on one exchange, as regular expressions."""

    write: str = _NOTHING
    read: str = _NOTHING


@dataclass(frozen=True, slots=True)
class Rights:
    """What one login may do: resource patterns, and keys per exchange."""

    configure: str
    write: str
    read: str
    topics: Mapping[str, TopicRight] = field(default_factory=dict)

    def may_publish(self, exchange: str, key: str) -> bool:
        """Whether a publish would be let through; asked before publishing, since a 403 closes the channel."""
        return bool(re.search(self.write, exchange) and re.search(self.topics.get(exchange, TopicRight()).write, key))


def replies_to(login: str, key: str) -> bool:
    """Whether ``key`` is the address of a session of ``login``: one that a reply may be published to, by whoever answers."""
    address = _REPLY_KEY.match(key)
    return address is not None and address[1] == login


def _either(patterns: Iterable[str]) -> str:
    parts = sorted(set(patterns))
    return f"^({'|'.join(parts)})$" if parts else _NOTHING


def rights_of(identity: Identity, manifest: Manifest) -> Rights:
    """The least that a runtime of this manifest needs, under this identity. Raises ValueError if they are of two modules."""
    if manifest.module != identity.module:
        raise ValueError(f"{identity} cannot have the rights of the module {manifest.module!r}: a login has those of its own module")
    me, module, machine = (re.escape(part) for part in (str(identity), identity.module, identity.machine))
    own_queues = rf"(asks|replies|tells|parked)\.{me}(\.{_HEX}(\.[a-z]+)?)?"
    provided = [re.escape(wire.provides_queue(one)) for one in manifest.provides]
    controls = manifest.seat == "controller"
    control_read = [rf"compose\.{module}"] if manifest.sections else []
    if any(tell.startswith("signed-declaration.") for tell in manifest.told):
        control_read.append(rf"declare\.{machine}")
    ask_levels = "lookup|provision|tool" if manifest.module == OPERATOR else "lookup|provision"
    answered = [_escaped_answer(answer) for answer in manifest.answers]
    if manifest.told:
        answered.append(rf"tool\.{me}\.{_PARKED_ACT}")
    asked = [rf"({ask_levels})\.[a-z0-9-]+\.[0-9]+"]
    if manifest.module == OPERATOR:
        asked.append(rf"tool\.{_ANY_ID}\.{_PARKED_ACT}")
    tells = [re.escape(tell) for tell in manifest.tells]
    told = [re.escape(tell) for tell in manifest.told]
    return Rights(
        configure=_either([own_queues, *provided]),
        write=_either([own_queues, *(re.escape(name) for name in _written(controls))]),
        read=_either([own_queues, *(re.escape(name) for name in wire.EXCHANGES)]),
        topics={
            wire.CONTROL: TopicRight(
                write=r"^(compose\.[a-z0-9-]+|declare\.[a-z0-9-]+)$" if controls else _NOTHING,
                read=_either(control_read),
            ),
            wire.ASKS: TopicRight(write=_either(asked), read=_either(answered)),
            wire.TELLS: TopicRight(
                write=_either([rf"(all|to\.{_ANY_ID})\.{tell}" for tell in tells] + [rf"parked\.{me}"]),
                read=_either([rf"(all|to\.{me})\.{tell}" for tell in told] + [rf"parked\.{me}"]),
            ),
            wire.REPLIES: TopicRight(write=rf"^{_ANY_ID}\.{_HEX}$", read=rf"^{me}\.{_HEX}$"),
        },
    )


def _written(controls: bool) -> tuple[str, ...]:
    runtimes = (wire.ASKS, wire.TELLS, wire.REPLIES)
    return (wire.CONTROL, *runtimes) if controls else runtimes


def _escaped_answer(answer: str) -> str:
    level, _, type_name = answer.partition(":")
    return re.escape(wire.ask_key(level, type_name))


def definitions(
    vhost: str, logins: Mapping[Identity, Manifest], password_hashes: Mapping[Identity, str] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """RabbitMQ definitions (the JSON of ``/api/definitions``) for one vhost and these logins.

    ``password_hashes`` adds the users themselves (``rabbit_password_hashing_sha256``); without it users are left as they are.
    """
    permissions, topics = [], []
    for identity, manifest in sorted(logins.items(), key=lambda item: str(item[0])):
        rights = rights_of(identity, manifest)
        user = {"user": str(identity), "vhost": vhost}
        permissions.append(user | {"configure": rights.configure, "write": rights.write, "read": rights.read})
        topics += [
            user | {"exchange": exchange, "write": right.write, "read": right.read} for exchange, right in sorted(rights.topics.items())
        ]
    made: dict[str, list[dict[str, Any]]] = {
        "vhosts": [{"name": vhost}],
        "exchanges": [
            {
                "name": name,
                "vhost": vhost,
                "type": "topic",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for name in wire.EXCHANGES
        ],
        "permissions": permissions,
        "topic_permissions": topics,
        "policies": [
            {
                "name": f"mesh-{kind}",
                "vhost": vhost,
                "pattern": rf"^{kind}\.",
                "apply-to": "queues",
                "priority": 0,
                "definition": {"delivery-limit": limit},
            }
            for kind, limit in (("tells", DELIVERY_LIMIT), ("parked", PARKED_LIMIT))
        ],
    }
    if password_hashes is not None:
        made["users"] = [
            {
                "name": str(identity),
                "password_hash": hashed,
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
            for identity, hashed in sorted(password_hashes.items(), key=lambda item: str(item[0]))
        ]
    return made
