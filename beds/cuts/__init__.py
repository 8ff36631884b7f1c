"""Cuts: kill -9 of everybody between every two steps of a grant's issue, rotation and revocation, and what stands afterwards.

Nothing here knows the library's code: steps are what passes on the wire, seen by gates between the processes.
"""
