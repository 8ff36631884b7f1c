"""The law of tells: a message that must arrive. Durable, confirmed, acknowledged once handled, parked with a reason if it cannot be.

A send ends in one of three ways: confirmed (it returns), certainly not sent (``NotSent``), or unknown (``SendUnknown``: it may well
arrive). A repeat is harmless, because the newest generation wins or the id is the key. Nothing is lost silently: what cannot be handled
is put aside for a person.
"""

from mesh_runtime.telling.listening import Listener, Told
from mesh_runtime.telling.teller import NotSent, SendUnknown, Teller

__all__ = ["Listener", "NotSent", "SendUnknown", "Teller", "Told"]
