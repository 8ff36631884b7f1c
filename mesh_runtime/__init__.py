"""The library of the mesh: all that the author of a module imports.

A runtime built on it waits, in its own process, for whatever may come later (broker, certificate, login), and what it
composes is complete or refused. The layers of this package, and which may import which, stand in `pyproject.toml`
under import-linter; the words stand in `docs/glossary.md`.
"""
