"""The controller: keeps the inventory, answers lookups from it, composes machines and pushes their declarations."""

from mesh_runtime_controller.controller import Controller

__all__ = ["Controller"]
