"""Makes the frames of a publish, and remembers those that are the same for each message to one key."""

from mesh_runtime.broker import encoding
from mesh_runtime.broker.messages import Properties

#: Keys remembered. A responder publishes to one for each asker; beyond this many all are forgotten.
REMEMBERED = 2048


class Publisher:
    """Encodes for one channel."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._methods: dict[tuple[str, str, bool], bytes] = {}

    def frames(self, exchange: str, key: str, body: bytes, props: Properties, mandatory: bool, bounded: bool = True) -> bytes:
        """All frames of one message, its size checked if it is ``bounded``.

        Raises TooLarge, or ValueError for a name of more than 255 bytes.
        """
        method = self._methods.get((exchange, key, mandatory))
        if method is None:
            if len(self._methods) >= REMEMBERED:
                self._methods.clear()
            method = encoding.publish_method(self._channel, exchange, key, mandatory)
            self._methods[exchange, key, mandatory] = method
        return method + encoding.content(self._channel, body, props, self._frame_max, bounded)
