"""Hooks that are programs: found, trusted, run, and made into the same hooks as Python functions.

running    one call of a program: clean environment, a time limit, capped output, and its whole process tree ended
failing    what it means when a program fails: one that decides has not agreed
exact      a verdict holds only for the exact call that it was about
points     wick's own points as JSON, for programs of any protocol
found      what discovery found, and how it is listed
trust      which files may run
discovery  where programs are looked for
single     one program per hook
settings   Claude Code's settings, as they are written; `sources` has where they come from and what is trusted
claude     these as hooks: claude_runs and claude_tools have the events, claude_session what stands behind them
handlers   one call of a command, a server or a prompt; claude_answers says what its answer means
transcript a conversation as a file
warm       programs that are kept, their hooks and tools
serving    a process that is kept: asked, ended when it fails, started again
pipes      its input and output, as lines
"""
