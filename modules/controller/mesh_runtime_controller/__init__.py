"""The controller: keeps the inventory, answers lookups from it, composes machines and pushes their declarations."""
