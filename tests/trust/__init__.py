"""What mesh_runtime.trust promises, a file per behaviour."""
