"""A scripted server of several vendors' wire formats: as strict as they are, with faults at any byte."""

from provider.fault_table import FAULTS, Kind
from provider.faults import FINE, Fault
from provider.flow import CLOSE, RESET, STALL, Act, Head
from provider.script import Call, Event, Reply, Thought, Tokens
from provider.server import WIRES, Answer, Asked, Script, ScriptedServer, Wire, stream_of

__all__ = [
    "CLOSE",
    "FAULTS",
    "FINE",
    "RESET",
    "STALL",
    "WIRES",
    "Act",
    "Answer",
    "Asked",
    "Call",
    "Event",
    "Fault",
    "Head",
    "Kind",
    "Reply",
    "Script",
    "ScriptedServer",
    "Thought",
    "Tokens",
    "Wire",
    "stream_of",
]
