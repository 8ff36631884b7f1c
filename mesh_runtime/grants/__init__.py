"""Grants: what is issued to one identity, sealed to it, confirmed by it, rotated and revoked.

Issuing and holding meet in messages alone. Each of their steps may be cut between any two statements and done again: an issuer records a
login before it is made, a consumer confirms one when nothing of its uses an older one, and only then is the older one retired.
"""
