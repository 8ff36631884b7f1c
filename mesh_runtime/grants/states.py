"""The way of a login (``drawn``, ``issued``, ``confirmed``, ``retiring``, gone) as functions of a record: no step stands elsewhere."""

from mesh_runtime.contracts.granting import GrantRow
from mesh_runtime.grants.ledger import Login, Record

IN_FORCE = ("issued", "confirmed")
ENDING = ("drawn", "retiring")


def in_force(record: Record) -> tuple[Login, ...]:
    """The logins that a consumer may be using, the newest last."""
    return tuple(sorted((one for one in record.logins if one.state in IN_FORCE), key=lambda one: one.sequence))


def newest_in_force(record: Record) -> Login | None:
    """What an ask is answered with, if it is asked by the same key."""
    return next(reversed(in_force(record)), None)


def ending(record: Record) -> tuple[Login, ...]:
    """The logins that are to be retired: those that end, and those that were drawn and never answered. Look under the resource's lock."""
    return tuple(one for one in record.logins if one.state in ENDING)


def pending(record: Record, issuer: str) -> Login | None:
    """A rotated login that the consumer has not confirmed yet, if it was sealed by ``issuer`` to the key that is served."""
    force = in_force(record)
    if len(force) < 2 or force[-1].state == "confirmed" or record.revoked:
        return None
    return force[-1] if servable(record, force[-1], issuer) else None


def servable(record: Record, login: Login, issuer: str) -> bool:
    """Whether the consumer of ``record`` can open what this login was sealed as."""
    return bool(record.key) and (login.key, login.issuer) == (record.key, issuer)


def retiring(login: Login) -> Login:
    """The same login, to end."""
    return login.model_copy(update={"state": "retiring"})


def confirmed(record: Record, sequence: int, now: str) -> Record | None:
    """``record`` once its consumer uses ``sequence`` and nothing older; None if that says nothing new (late, twice, unknown, ended)."""
    if not any(one.sequence == sequence for one in in_force(record)):
        return None
    logins = tuple(_after_confirmation(one, sequence, now) for one in record.logins)
    return None if logins == record.logins else record.model_copy(update={"logins": logins})


def _after_confirmation(login: Login, sequence: int, now: str) -> Login:
    if login.sequence < sequence:
        return retiring(login)
    if login.sequence == sequence and login.state == "issued":
        return login.model_copy(update={"state": "confirmed", "confirmed": now})
    return login


def revoked(record: Record, words: str) -> Record:
    """``record`` with every login to end; ``words`` say by whom and when."""
    return record.model_copy(update={"revoked": words, "logins": tuple(map(retiring, record.logins))})


def ended(record: Record) -> Record:
    """``record`` after the end of its placement: every login is to end, and who asks next is judged anew."""
    return record.model_copy(update={"key": "", "logins": tuple(map(retiring, record.logins))})


def reopened(record: Record) -> Record:
    """``record`` after a rekey: the next that asks rightly is taken, whatever its key; what is in force stays until it confirms."""
    return record.model_copy(update={"key": "", "revoked": ""})


def without(record: Record, sequence: int) -> Record:
    """``record`` once the login of this sequence number is gone."""
    return record.model_copy(update={"logins": tuple(one for one in record.logins if one.sequence != sequence or one.state not in ENDING)})


def rows(record: Record, issuer: str, detail: str = "") -> tuple[GrantRow, ...]:
    """``record`` as an operator sees it; ``detail`` says what holds up its ending."""
    about = {"consumer": record.consumer, "resource": record.resource}
    if not record.logins:
        return (GrantRow(**about, issuer=issuer, state="revoked" if record.revoked else "open", detail=record.revoked),)
    words = record.revoked and f"revoked {record.revoked}"
    return tuple(
        GrantRow(
            **about,
            issuer=one.issuer,
            state=one.state,
            sequence=one.sequence,
            login=one.login,
            since=one.since,
            confirmed=one.confirmed,
            detail="; ".join(filter(None, (words, detail if one.state in ENDING else ""))),
        )
        for one in sorted(record.logins, key=lambda one: one.sequence)
    )
