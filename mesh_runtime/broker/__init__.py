"""The only layer that knows the broker's client: sessions, channels, topology.

``open_session`` climbs to a ``Session``; a session gives channels of three kinds, ``Wire`` (asks, replies, consuming),
``ConfirmedChannel`` (tells) and ``Getter`` (fetching). aiormq keeps the connection itself; what is sent and received often is encoded,
decoded and handed on here, without a task or a queue between the socket and the caller. There is one recovery in the library and it is
not here: a session that is lost is over.
"""

from mesh_runtime.broker.channel import Wire
from mesh_runtime.broker.confirms import ConfirmedChannel
from mesh_runtime.broker.dialing import BrokerAt, open_session, resolve
from mesh_runtime.broker.faults import ChannelLost, NotRouted, OutcomeUnknown, PublishRefused, SessionLost, TooLarge
from mesh_runtime.broker.getting import Getter
from mesh_runtime.broker.messages import Consumer, Delivery, Properties, Returned
from mesh_runtime.broker.session import Session

__all__ = [
    "BrokerAt",
    "ChannelLost",
    "ConfirmedChannel",
    "Consumer",
    "Delivery",
    "Getter",
    "NotRouted",
    "OutcomeUnknown",
    "Properties",
    "PublishRefused",
    "Returned",
    "Session",
    "SessionLost",
    "TooLarge",
    "Wire",
    "open_session",
    "resolve",
]
