"""Hook programs: executables that are discovered, checked for trust, and registered as hooks.

runner          one call of a program: clean environment, time limit, capped output, and its process tree killed
failure_policy  the consequence of a failed program: a program that decides has not agreed
agreements      agreements of programs, each for one exact operation
wick_protocol   wick's own hook points as JSON, for programs of any protocol
registry        a discovered program, and its row in a list
trust           hashes of the files that may run
discovery       directories of programs, and their types
hooks           programs that are started for each event
long_running    a program as hooks, independent of its protocol and transport
worker_pool     hooks and tools of programs that stay running
worker          a process that stays running: requests, restarts, idle shutdown
pipe            its stdin and stdout as lines
kodelet         events of kodelet
claude          settings of Claude Code: files, handlers, events, transcript
"""
