"""The pytest plugin: options, and every fixture of the kit.

Fixtures stand in files of their own; this file gathers them under the one name that the entry point names.
"""
