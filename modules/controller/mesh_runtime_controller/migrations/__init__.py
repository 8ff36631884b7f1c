"""How the inventory's tables came to be, step by step (alembic)."""
