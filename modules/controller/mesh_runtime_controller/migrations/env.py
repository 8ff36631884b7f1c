"""Alembic's environment: migrations run on the connection that the store hands over, all of them in its one transaction."""

from alembic import context

from mesh_runtime_controller.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
