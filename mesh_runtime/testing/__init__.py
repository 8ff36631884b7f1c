"""The kit of a module's author: a real broker, broken links, faulty certificates, as parts of a test.

Nothing in the rest of the library imports this package. It is installed by `pip install mesh-runtime[testing]`, and
its fixtures are there in every pytest run of that environment (`mesh_runtime.testing.plugin`).
"""
