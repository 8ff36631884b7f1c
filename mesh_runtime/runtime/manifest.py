"""The manifest of a module, printed from its class: it is written nowhere else."""

from mesh_runtime.contracts.manifest import Manifest
from mesh_runtime.runtime.authoring import provided_by
from mesh_runtime.runtime.module import ModuleRuntime


def manifest_of(cls: type[ModuleRuntime], version: str) -> Manifest:
    """What the class says of itself, as data; ``version`` is that of its distribution."""
    answers = [f"{ask.level}:{ask.type_name()}" for ask in cls.answer_methods.values()]
    told = [tell.type_name() for tell in cls.told_methods.values()]
    tells = [tell.type_name() for tell in cls.tells]
    provided = provided_by(cls)
    if cls.granted_methods or provided is not None:
        from mesh_runtime.contracts.granting import GrantConfirmed, GrantRevoked, GrantRotated, acts_on, ask_for, issuer_of

        rotated, revoked, confirmed = (one.type_name() for one in (GrantRotated, GrantRevoked, GrantConfirmed))
        if cls.granted_methods:
            told += [rotated, revoked]
            tells += [confirmed]
        if provided is not None:
            told += [confirmed]
            tells += [rotated, revoked]
            answers += [f"{ask.level}:{ask.type_name()}" for ask in (ask_for(provided), acts_on(provided), issuer_of(provided))]
    return Manifest(
        module=cls.module,
        version=version,
        command=(f"mesh-runtime-{cls.module}", "run"),
        seat=cls.seat,
        needs=tuple(sorted(method.resource.text for method in cls.granted_methods.values())),
        provides=() if provided is None else (provided.type_name(),),
        sections=tuple(sorted(slot.section for slot in cls.slots)),
        answers=tuple(sorted(answers)),
        told=tuple(sorted(set(told))),
        tells=tuple(sorted(set(tells))),
    )
