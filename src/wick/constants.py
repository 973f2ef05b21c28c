"""Limits and timeouts of all modules."""

# hooks and the loop
GUARD_SECONDS = 30.0  # a guard that has not answered by then counts as a refusal
MAX_STEPS = 25
MAX_ANSWERS = 8  # answers with changed arguments to the questions about one operation
MAX_CONTINUES = 8  # consecutive times that hooks may continue a finished run
ASK_SECONDS = 24 * 3600.0  # until a question expires
CANCEL_GRACE_SECONDS = 1.0  # a cancelled task that has not ended by then is abandoned

# hook programs
HOOK_SECONDS = 30.0  # for the answer of a hook program
HOOK_COMMAND_SECONDS = 600.0  # for a command or server configured in settings
HOOK_TYPE_SECONDS = 5.0  # for a program to print its hook points
HOOK_OUTPUT_BYTES = 1_000_000  # largest answer
HOOK_FILE_BYTES = 100_000_000  # largest program that is trusted by its hash
HOOK_FILES = 500  # programs in one directory
HOOK_TEXT_CHARS = 10_000  # of one text of a program; longer texts are written to a file
HOOK_PREVIEW_CHARS = 2_000  # of such a text that are shown
HOOK_SESSIONS = 1_000  # remembered conversations, to notify programs of their end
TRUST_BYTES = 4_000_000  # of the trust file

# tools
TOOL_OUTPUT_CHARS = 1_000_000  # default of `max_output`
CUT_HEAD_CHARS = CUT_TAIL_CHARS = 2_000  # of a truncated output
CALLBACK_SECONDS = 60.0
BLOCKED_SECONDS = 1.0  # a tool that blocks the event loop for longer is logged
CALLBACK_BYTES = 1_000_000  # largest response of an HTTP tool
ARGS_BYTES = 4_000_000  # largest arguments of one call
JSON_DEPTH = 100
CRASHES_KEPT = 10  # exceptions in the result of a run; the traceback of each keeps its frames in memory

# JSON Schema of tools and answers
SCHEMA_BYTES = 200_000
SCHEMA_VALUES = 10_000  # keywords, and their names and items
SCHEMA_BRANCHES = 2_000  # subschemas that one value is checked against, with references expanded
SCHEMA_EXPANSION = 100_000  # subschemas in total, with references expanded
SCHEMA_PATTERN_SIZE = 5_000  # states of one pattern
SCHEMA_PATTERNS_SIZE = 20_000  # states of all patterns
SCHEMA_STEPS = 100_000  # keywords evaluated and items visited to check one value; about half a second
SCHEMA_QUICK_STEPS = 1_000  # in the event loop; longer checks run in a thread
SCHEMA_QUICK_BYTES = 50_000  # of JSON; larger values are checked in a thread

# models
REPLY_CHARS = 8_000_000  # text, reasoning and arguments of one reply
REPLY_CALLS = 128
SSE_LINE_BYTES = 16_000_000  # longest line of a stream
ERROR_BODY_BYTES = 64_000  # read of an error response
CONNECT_SECONDS = 10.0
CONNECTION_IDLE_SECONDS = 15.0  # until an unused connection is closed
FIRST_BYTE_SECONDS = 120.0  # until the reply starts
CHUNK_SECONDS = 60.0  # between two chunks of a reply
REPLY_SECONDS = 900.0  # until the reply ends
LAST_BYTE_SECONDS = 1.0  # for the end of a response that was read, so that its connection can be reused
OLLAMA_SECONDS = 0.3  # for the probe of an Ollama server

# the demo model
DEMO_VALUE_CHARS = 200_000  # generated for one schema
DEMO_VALUE_STEPS = 5_000  # subschemas visited for it

# token estimates: characters / 4; an image, audio or a file counts as MEDIA_TOKENS
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 1_000

# traces
PREVIEW_CHARS = 500

# docker
ENGINE_SECONDS = 20.0  # for a response of the engine
ENGINE_GRACE_SECONDS = 3.0  # for the removal of an abandoned container
LAUNCH_SECONDS = 60.0  # to create or start a container
PULL_SECONDS = 900.0
ENGINE_ANSWER_BYTES = 16_000_000  # largest response
ENGINE_BUFFER_BYTES = 65_536  # read at once from a process in a container
DAEMON_SECONDS = 10.0  # for the daemon in a container to start
DAEMON_PAUSE_SECONDS = 5.0  # before a failed start is retried
CONTAINER_FRESH_SECONDS = 1.0  # for which a checked container is assumed to exist
CONTAINER_MEMORY = 2_000_000_000
CONTAINER_PIDS = 512
CONTAINER_CPUS = 2.0
CONTAINER_TMP_BYTES = 512_000_000  # of its /tmp, in memory

# commands
COMMAND_SECONDS = 120.0  # default time limit
COMMAND_GRACE_SECONDS = 0.2  # between SIGTERM and SIGKILL
END_SECONDS = 0.5  # for killed processes to disappear
OUTPUT_HEAD_BYTES = OUTPUT_TAIL_BYTES = 500_000  # stored of each output of a command
OUTPUT_KEEP_BYTES = 2_000_000  # largest head or tail that a caller may request
COMMANDS_AT_ONCE = 128
COMMANDS_WAITING = 1_024
JOBS_AT_ONCE = 32
TERMINALS_AT_ONCE = 32
JOBS_KEPT = 32  # finished jobs with available output
JOB_OUTPUT_BYTES = 1_000_000  # the last bytes of a job's output
TERMINAL_WINDOW_BYTES = 256_000  # of unread output, before a terminal is paused
WIRE_LINE_BYTES = 64_000_000  # largest request or reply
WIRE_BUFFER_BYTES = 1_000_000  # of unread replies, before output streams pause
FILE_SECONDS = 30.0  # for a search in a workspace
DAEMON_ANSWER_SECONDS = 10.0  # for an immediate reply of wickd
DAEMON_GRACE_SECONDS = 3.0  # after a time limit that wickd should have enforced
HOST_START_SECONDS = 10.0  # for wickd to start on this machine

# permissions
SHELL_CHARS = 50_000  # of a command that is parsed; longer commands need approval
SHELL_COMMANDS = 200  # in one script
SHELL_WORDS = 300  # of one command
SHELL_TOKENS = 3_000  # in one script, including nested ones
SHELL_NESTED = 30  # nested substitutions
SHELL_REDIRECTS = 200
SHELL_ASSIGNMENTS = 100
SHELL_LOOSE_WORDS = 100  # words of a command with an unknown value
SHELL_TEXTS = 50  # nested command texts, such as of `sh -c`
SHELL_ALL_WORDS = 2_000  # of all commands, including nested ones
SHELL_INLINE_CHARS = 100  # a shorter command is parsed in the event loop
SHELL_WRAPPED = 40  # nested wrapper commands, such as `nice`
SHELL_NESTING = 8  # nested shells
SHELL_DEPTH = 200  # nested brackets
RULE_CHARS = 2_000
QUESTION_CHARS = 2_000  # of arguments in a question, except commands, paths and URLs
DETAIL_LINES = 200  # of an argument shown at a terminal, except commands
DETAIL_CHARS = 20_000

# files
FILE_READ_BYTES = 10_000_000  # default and largest read
FILE_WRITE_BYTES = 40_000_000
EDIT_BYTES = 10_000_000  # largest file that can be edited
LINE_BYTES = 100_000  # shown of one line
LINES_SCAN_BYTES = 1_000_000_000  # scanned to find a line by number
LIST_ENTRIES = 10_000
GLOB_FILES = 10_000
GLOB_CHARS = 4_096  # of a pattern
GLOB_ALTERNATIVES = 256  # after brace expansion
WALK_ENTRIES = 500_000  # files and folders visited by one walk
WALK_SECONDS = 20.0
TREE_ENTRIES = 5_000_000  # in a folder to move or delete; a larger one may contain protected files
DELETE_SECONDS = 60.0
IGNORE_BYTES = 256_000  # of a .gitignore
IGNORE_RULES = 5_000
BINARY_HEAD_BYTES = 8_192  # a file with a NUL in these bytes is binary
GREP_MATCHES = 1_000
GREP_BYTES = 2_000_000_000  # searched by one grep
GREP_BUFFER_BYTES = 8_000_000  # a longer line is searched in pieces
GREP_OVERLAP_BYTES = 64_000  # by which these pieces overlap
GREP_LINE_CHARS = 500  # shown of a matching line
GREP_PATTERN_CHARS = 10_000
GREP_MEMORY_BYTES = 16_000_000  # for a compiled pattern

# the local sandbox
COMMAND_MEMORY = 2_000_000_000  # of a command and its child processes
COMMAND_PIDS = 512
PROTECTED_MOUNTS = 300  # mounts over protected paths; commands are refused if there are more paths
PLANTS_NAMED = 100  # neutralised paths listed in the result of a command
GUARD_WALK_SECONDS = 60.0  # for the first walk of a workspace
WATCH_SECONDS = 1.0  # between two walks of a workspace that inotify cannot watch
WATCH_PAUSE_SECONDS = 0.02  # between two walks that search for renamed folders
WATCH_LINGER_SECONDS = 3.0  # for which a container's workspace is watched after the program was killed
WATCH_IDLE_SECONDS = 60.0  # for which a workspace without commands is watched

# snapshots of workspaces
SNAPSHOT_CHUNK_BYTES = 1_000_000  # of a file; a changed file shares its unchanged chunks
SNAPSHOT_FILE_BYTES = 100_000_000  # of one file; larger files are listed as not covered
SNAPSHOT_BYTES = 2_000_000_000  # of all files; larger workspaces have no snapshots
SNAPSHOT_ENTRIES = 200_000  # files and folders; larger workspaces have no snapshots
SNAPSHOT_DEPTH = 128  # of nested folders; deeper folders are listed as not covered
SNAPSHOT_PASSES = 4  # over a workspace whose files change meanwhile
SNAPSHOT_RACE_SECONDS = 0.05  # a file that changed so recently may change again with an equal timestamp
SNAPSHOT_COARSE_SECONDS = 2.0  # the same, on file systems that store seconds
SNAPSHOT_SECONDS = 5.0  # between two snapshots of one turn
SNAPSHOT_DAYS = 30.0  # until a snapshot is deleted
SNAPSHOTS_KEPT = 1_000  # of one workspace
SNAPSHOT_LISTED = 100  # paths that are listed as not covered
SNAPSHOT_DIFF_CHARS = 200_000  # of the text of all changes
SNAPSHOT_DIFF_BYTES = 400_000  # of a file whose changed lines are shown

# files in threads
STATE_FILE_BYTES = 1_000_000  # of one file in a thread
STATE_BYTES = 10_000_000  # of all files in a thread, including their names

# built-in tools
CALCULATE_CHARS = 2_000  # of an expression
CALCULATE_DIGITS = 4_000  # of a number or intermediate result; Python prints at most 4,300
CALCULATE_NESTING = 50
HTTP_SECONDS = 30.0
HTTP_BYTES = 1_000_000  # read of a response
HTTP_BODY_BYTES = 1_000_000  # largest request body
HTTP_HEADERS = 50
HTTP_HEADERS_BYTES = 16_000
URL_CHARS = 8_000
SEARCH_SECONDS = 30.0
SEARCH_CHARS = 1_000  # of a query
SEARCH_RESULTS = 20

# large results
RESULT_CHARS = 80_000
STREAM_CHARS = 1_000_000  # of a command's output streamed while it runs
LONGEST_COMMAND_SECONDS = 600.0  # largest time limit that a model may request

# todos
TODOS = 100
TODO_ID_CHARS = 64
TODO_TITLE_CHARS = 500

# memory and skills
MEMORY_FILE_BYTES = 100_000  # shown of one file
MEMORY_BYTES = 200_000  # shown of all files
INSTRUCTION_BYTES = 1_000_000  # of a file that is compared and restored
FRONT_MATTER_BYTES = 64_000  # YAML at the top of a Markdown file
SKILLS = 200  # in a catalogue
SKILL_COPIES = ".skills"  # folder of a workspace for copies of skills of the machine
SKILL_NAME_CHARS = 64
SKILL_DESCRIPTION_CHARS = 1_024  # shown; longer descriptions are truncated
SKILL_BYTES = 500_000  # of a SKILL.md
ARCHIVE_BYTES = 10_000_000  # of an uploaded archive
ARCHIVE_UNPACKED_BYTES = 50_000_000
ARCHIVE_ENTRIES = 2_000

# programs of code mode
PROGRAM_SECONDS = 5.0  # computing time
PROGRAM_MEMORY_MB = 100
PROGRAM_CALLS = 200
PROGRAM_DEPTH = 200  # nested function calls
PROGRAM_OUTPUT_CHARS = 20_000
PROGRAM_CHARS = 20_000  # of the program itself
PROGRAM_VALUES = 10_000  # in the arguments of one call, also in lists and dicts; 400 characters count as one more
PROGRAM_STATE_BYTES = 2_000_000  # of a stored state; a larger program runs again instead
PROGRAM_WAIT_SECONDS = 0.05  # a program that waits longer for an answer is stored
FUNCTIONS_LISTED = 20  # functions in the description; others are found by search

# subagents
SUBAGENT_DEPTH = 3
SUBAGENT_BYTES = 256_000  # of a definition file
EXPIRED_AT_ONCE = 20  # threads deleted in one transaction, so that other writers are not blocked
EXPIRE_SECONDS = 300.0  # between two searches for expired threads
TASKS_AT_ONCE = 8  # children of one run that work at the same time, and its open background tasks
TASK_PROMPT_CHARS = 100_000
TASK_DESCRIPTION_CHARS = 100  # shown to the user
TASK_ANSWER_CHARS = 100_000  # stored of the answer of a background task
TASK_WAIT_SECONDS = 600.0  # longest wait for a task that a model may request

# questions to the user
ASK_QUESTION_CHARS = 2_000
ASK_OPTIONS = 20
ASK_OPTION_CHARS = 200
ASK_ANSWER_CHARS = 10_000
ASK_TRIES = 3  # for a valid answer

# answers and context
CRITIQUE_ROUNDS = 2  # times that a critic may reject an answer
CRITIQUE_CHARS = 60_000  # of the work shown to a critic
OUTPUT_RETRIES = 3  # for an answer that does not match its schema
CONTEXT_FILE_BYTES = 200_000  # of a context file, which is part of every conversation
METADATA_KEYS = 100
METADATA_KEY_CHARS = 100
METADATA_VALUE_BYTES = 10_000
METADATA_BYTES = 100_000  # of all metadata, which is logged after each change
TOOLS_SHOWN = 20  # if there are more, they are hidden until searched for
TOOLS_LISTED = 300

# recipes
RECIPE_BYTES = 200_000
RECIPES = 500  # in one folder

# MCP servers
MCP_SECONDS = 60.0  # for a tool, a resource or a prompt
MCP_CONNECT_SECONDS = 30.0  # for a server to start and list its tools
MCP_CLOSE_SECONDS = 2.0  # for a server to exit after its input is closed, and again after SIGTERM
MCP_MESSAGE_BYTES = 16_000_000  # largest message of a server
MCP_STDERR_BYTES = 2_000  # the last stderr output of a server, for the error if it exits
MCP_TOOLS = 200  # of one server
MCP_LIST = 500  # resources or prompts of one server that are listed
MCP_DESCRIPTION_CHARS = 4_000
MCP_DEFINITION_BYTES = 100_000  # of one tool
MCP_OUTPUT_CHARS = 100_000
MCP_MEDIA_CHARS = 5_000_000  # of the images in one result, in base64
MCP_PINS_BYTES = 1_000_000  # of a file with pins

# recorded runs
RUNS_RECORDED = 20
SPANS_RECORDED = 500  # of one run
TRACE_BYTES = 500_000  # of one run, as JSON

# server requests
HEAD_BYTES = 64_000  # of a request without its body
HEAD_SECONDS = 20.0  # to receive it
BODY_SECONDS = 30.0  # to receive the next chunk of a body, and the whole body, plus one second
BODY_PACE = 2_000  # per this number of bytes
JSON_VALUES = 50_000  # in the JSON of one request: parsing blocks the event loop

# server runs
RUN_CRASHES = 2  # of the server process during one tool use; the run is not resumed after that many
MODEL_CRASHES = 25  # of the server process during one model call: most of these are kills from outside

# server streams
READER_FRAMES = 1_000  # queued for one client; a slower client gets a resync
READER_BYTES = 250_000
REPLAY_FRAMES = 200  # of a resync, sent at once
UNHEARD_RUNS = 3  # failed starts until a message is no longer an input of the next run
STALLED_SECONDS = 60.0  # that clients wait for a run while its store is unavailable
HEARTBEAT_SECONDS = 15.0  # between two heartbeats of an idle stream

# the live plane between servers
LIVE_BYTES = 900_000  # of one message; a NATS server accepts 1 MB by default
LIVE_OUTBOX_BYTES = 8_000_000  # of messages that wait to be sent; further ones are dropped
LIVE_START_SECONDS = 2.0  # that a starting server waits for the connection
LIVE_RECONNECT_SECONDS = (0.1, 2.0)  # first and longest pause before a reconnect
LIVE_INTEREST_SECONDS = 10.0  # for which a run is published after a server has asked for it
LIVE_REFRESH_SECONDS = 3.0  # after which a server with readers asks again
LIVE_REPLY_SECONDS = 1.0  # for the reply of the server that performs a run
LIVE_LATE_SECONDS = 0.3  # by which the log may be ahead of the live frames, before a reader follows the log

# images and files in messages of clients
MEDIA_CHARS = 14_000_000  # ten megabytes in base64
MEDIA_URL_CHARS = 10_000

# redaction of API keys in error messages of providers
KEY_CHARS = 8  # a shorter key may occur in ordinary text
REFUSED_KEY_CHARS = 4  # where the server refuses the key itself

# redaction of secrets
SECRET_CHARS = 16  # shorter secrets are not redacted for users: redaction would confirm a guess
SECRET_DISTINCT = 8  # different characters of a secret
SECRET_LOG_CHARS = 8  # in the operator's log, shorter secrets are redacted too
SECRET_LIVE_CHARS = 512  # of an incomplete word that live output buffers; longer secrets are matched in parts

# YAML files
CONFIG_BYTES = 1_000_000
YAML_DEPTH = 20
YAML_VALUES = 20_000  # keys and values
RECORDING_BYTES = 500_000_000  # of a cassette, or of the recordings of a suite
RECORDING_DEPTH = JSON_DEPTH + 20
RECORDING_VALUES = 20_000_000  # parser events

# persistent hook programs
WARM_LINE_BYTES = 1_000_000  # longest line of output
WARM_QUEUE_BYTES = 8_000_000  # of unread input
WARM_START_SECONDS = 10.0  # until its pipes are open
WARM_IDLE_SECONDS = 300.0  # until an unused process is stopped
WARM_STDERR_CHARS = 500  # the last stderr output, for the error if it exits
WARM_BACKOFF_SECONDS = (0.1, 30.0)  # first and longest delay before a restart
WARM_PATIENCE_SECONDS = 0.5  # that a call waits for a restart; it fails if the delay is longer
WARM_ANSWERED = 1_000  # remembered ids of answered calls, to detect a second answer

# -- threads in memory ----------------------------------------------------------------------------------------------

CACHED_THREADS_BYTES = 24_000_000  # of the recently used threads of a server
CACHED_ENTRY_BYTES = 700  # of an entry beside its text, as measured
CACHED_THREADS_SECONDS = 900.0  # after which an unused thread is dropped

# -- disks ----------------------------------------------------------------------------------------------------------

WORKSPACE_BYTES = 5_000_000_000  # of a workspace created by a server; at most a fourth of its disk
RESERVED_BYTES = 1_000_000_000  # of a disk for the threads of a server; at most a tenth of it

# -- evals ----------------------------------------------------------------------------------------------------------

EVAL_SUITE_BYTES = 64_000_000
EVAL_JOBS = 8  # cases that run at the same time
EVAL_TEXT_CHARS = 4_000  # of an answer, or of the output of a tool, in a report
EVAL_REPORTS = 1_000  # stored reports that a server lists
EVAL_REPORT_BYTES = 64_000_000  # largest stored report that a server reads

# the project
REPOSITORY = "https://github.com/wick-agents/wick"  # wick is in no package index yet
