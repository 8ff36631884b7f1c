"""Asking without being a runtime: a command or an outside client that holds a session, asks, and leaves.

It gives a session what asking needs and nothing else: a reply queue of its own, bound and consumed. It climbs no stages and tries nothing
again; whoever visits says how long it will try.
"""

import os

from mesh_runtime.asking.asker import Asker
from mesh_runtime.broker import Session
from mesh_runtime.contracts import wire
from mesh_runtime.contracts.identity import Identity
from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.contracts.rights import rights_of
from mesh_runtime.startup import RuntimeState


async def visit(session: Session, identity: Identity, manifest: Manifest) -> Asker:
    """An asker over this session, until the session ends. Raises StageFault (topology) or SessionLost."""
    asker = Asker(identity, rights_of(identity, manifest), RuntimeState(str(identity), manifest.version, os.getpid()))
    replies = wire.replies_queue(identity, session.id)
    await session.declare_queue(replies, exclusive=True)
    await session.bind(replies, wire.REPLIES, wire.reply_key(identity, session.id))
    line = await session.wire()
    line.on_returned = asker.on_returned
    await line.consume(replies, asker.on_reply, no_ack=True)
    asker.attach(session, line)
    session.lost.add_done_callback(lambda lost: asker.detach("the session is over" if lost.cancelled() else lost.result()))
    return asker
