"""Networking: composes a machine's overlay and the trust in the store that this machine reaches."""
