"""What mesh_runtime.settings promises, a file per behaviour."""
