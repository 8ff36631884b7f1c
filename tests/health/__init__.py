"""What mesh_runtime.health promises, a file per behaviour."""
