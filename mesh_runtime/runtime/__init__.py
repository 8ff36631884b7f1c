"""What a module author subclasses, and what orders the stages and runs it."""

from mesh_runtime.runtime.authoring import answers, told
from mesh_runtime.runtime.life import Life
from mesh_runtime.runtime.manifest import manifest_of
from mesh_runtime.runtime.module import ModuleRuntime

__all__ = ["Life", "ModuleRuntime", "answers", "manifest_of", "told"]
