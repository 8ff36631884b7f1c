"""What mesh_runtime.logging promises, a file per behaviour."""
