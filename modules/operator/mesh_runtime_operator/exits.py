"""How the command ends: one exit code for each thing that an operator, or a script, would do next. Listed by ``mesh --help``."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes. ``--help`` prints the words."""

    DONE = 0
    UNREADABLE = 1
    USAGE = 2
    REFUSED = 3
    FAILED = 4
    UNHEARD = 5
    NOTHING_TO_DO = 6
    NOBODY = 7
    UNKNOWN_MACHINE = 8
    NO_SESSION = 9
    UNANSWERED = 10
    PARTLY = 11
    UNWRITTEN = 74
    NO_CONTEXT = 78
    INTERRUPTED = 130


WORDS = {
    Exit.DONE: "done; of a push: all that was asked is in force",
    Exit.UNREADABLE: "the states of the runtimes cannot be read at all",
    Exit.USAGE: "the command line is wrong",
    Exit.REFUSED: "refused: nothing was changed; who, why and each unanswered question are printed",
    Exit.FAILED: "failed: an element is not in force, or a tell could not be handled; which and why are printed",
    Exit.UNHEARD: "unheard: a machine was told, and has not reported in time",
    Exit.NOTHING_TO_DO: "there is nothing at all to do",
    Exit.NOBODY: "nobody is there: no controller, no issuer, or not the runtime that was asked",
    Exit.UNKNOWN_MACHINE: "a machine is unknown to the mesh",
    Exit.NO_SESSION: "the broker cannot be used within --wait; stage and cause are printed",
    Exit.UNANSWERED: "who was asked gave no answer: whether it acted is unknown",
    Exit.PARTLY: "a part of it is done: who has not done it, and why, is printed; the same again does the rest",
    Exit.UNWRITTEN: "stdout took no more; what was asked is done all the same",
    Exit.NO_CONTEXT: "no context, or one that cannot be used: set MESH_CONTEXT",
    Exit.INTERRUPTED: "interrupted (SIGINT): if the controller was asked already, whether it acted is unknown",
}


class Ended(Exception):
    """The command ends here: with this code, after these words for a person."""

    def __init__(self, code: Exit, words: str) -> None:
        super().__init__(words)
        self.code = code
