"""The manifest of a module, printed from its class: it is written nowhere else."""

from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.runtime.module import ModuleRuntime


def manifest_of(cls: type[ModuleRuntime], version: str) -> Manifest:
    """What the class says of itself, as data; ``version`` is that of its distribution."""
    return Manifest(
        module=cls.module,
        version=version,
        command=(f"mesh-runtime-{cls.module}", "run"),
        seat=cls.seat,
        sections=tuple(sorted(slot.section for slot in cls.slots)),
        answers=tuple(sorted(f"{ask.level}:{ask.type_name()}" for ask in cls.answer_methods.values())),
        told=tuple(sorted(tell.type_name() for tell in cls.told_methods.values())),
        tells=tuple(sorted(tell.type_name() for tell in cls.tells)),
    )
