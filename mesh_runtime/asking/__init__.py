"""The law of asks: a message whose sender waits, with a budget, and with exactly one outcome whatever happens on the way.

An ask lives as long as its asker and is stored nowhere. It ends as an outcome of its contract or as ``Unanswered``; silence, refusal,
rubbish, lateness and a lost session can never be taken for *absent*.
"""

from mesh_runtime.asking.answering import Answer, Answerer
from mesh_runtime.asking.asker import Asker
from mesh_runtime.asking.record import QuestionRecord
from mesh_runtime.asking.scope import Scope, current_scope, scoped

__all__ = ["Answer", "Answerer", "Asker", "QuestionRecord", "Scope", "current_scope", "scoped"]
