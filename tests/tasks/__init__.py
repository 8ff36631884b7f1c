"""What mesh_runtime.tasks promises, a file per behaviour."""
