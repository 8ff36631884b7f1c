"""Grants: what an issuer promises, whatever is cut, repeated, late or refused; what a consumer makes of it."""
