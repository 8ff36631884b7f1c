"""One JSON line per record on stdout, for every logger of the process, with registered secrets masked as the last step.

`configure` is called once, by the entrypoint, as soon as the settings are known; a module only ever writes
`structlog.get_logger()` or `logging.getLogger(__name__)`. Correlation ids are bound by `structlog.contextvars`.

What is promised: no local variable is ever shown, no logging call raises for what it was given to show, no record breaks its
line, and no secret that was registered (`register_secret`) is written, in whatever escape. What is refused: a setting that
turns masking off.
"""

from mesh_runtime.logging.hooks import install_loop_hook
from mesh_runtime.logging.masking import MASK, forget_secret, mask_text, register_secret
from mesh_runtime.logging.plain import masked
from mesh_runtime.logging.setup import configure

__all__ = ["MASK", "configure", "forget_secret", "install_loop_hook", "mask_text", "masked", "register_secret"]
