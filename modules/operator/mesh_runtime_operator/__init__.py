"""The command `mesh`: what operators say, and what the mesh reports. No runtime; it starts modules by their scripts."""
