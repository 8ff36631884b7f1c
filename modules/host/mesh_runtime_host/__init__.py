"""The host: brings its machine to the declaration it was given, guards it, and reports what it found.

`host` is the runtime; `judging` decides whether a declaration is taken; `rendering` says which file an element is; `beneath` and `disk`
write one whole file under the root and no other; `store` keeps what was accepted and what is ours; `applying` brings the machine there and
looks again; `reporting` tells until it is heard.
"""

from mesh_runtime_host.host import Host

__all__ = ["Host"]
