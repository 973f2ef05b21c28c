"""Every cap in one place."""

# hooks and the loop
GUARD_SECONDS = 30.0  # a guard that has not answered by then has not agreed
MAX_STEPS = 25
MAX_ANSWERS = 8  # answers with changed arguments to the questions about one operation
MAX_CONTINUES = 8  # hooks may send a finished run back this often in a row
ASK_SECONDS = 24 * 3600.0  # how long a question waits for its answer
CANCEL_GRACE_SECONDS = 1.0  # what is cancelled and does not end by then is abandoned

# hooks that are programs
HOOK_SECONDS = 30.0  # for a program to answer
HOOK_COMMAND_SECONDS = 600.0  # for a command or a server that settings name
HOOK_TYPE_SECONDS = 5.0  # for it to say what it hooks
HOOK_OUTPUT_BYTES = 1_000_000  # the longest answer
HOOK_FILE_BYTES = 100_000_000  # of a program that is trusted by its hash
HOOK_FILES = 500  # programs in one directory
HOOK_TEXT_CHARS = 10_000  # of one text that a program says; a longer one goes into a file
HOOK_PREVIEW_CHARS = 2_000  # and this much of it is shown
HOOK_SESSIONS = 1_000  # conversations that are remembered, to tell programs when they end
TRUST_BYTES = 4_000_000  # of the file that says what is trusted

# tools
TOOL_OUTPUT_CHARS = 1_000_000  # unless the tool says `max_output`
CUT_HEAD_CHARS = CUT_TAIL_CHARS = 2_000  # what is kept of an output that was cut
CALLBACK_SECONDS = 60.0
CALLBACK_BYTES = 1_000_000  # the largest answer an HTTP tool may give
ARGS_BYTES = 4_000_000  # the largest arguments of one call
JSON_DEPTH = 100

# JSON Schema of tools and answers
SCHEMA_BYTES = 200_000
SCHEMA_VALUES = 10_000  # keywords, and names and items in them
SCHEMA_BRANCHES = 2_000  # schemas that one value is checked against, references and branches written out
SCHEMA_EXPANSION = 100_000  # schemas in all, references written out
SCHEMA_PATTERN_SIZE = 5_000  # states of one pattern
SCHEMA_PATTERNS_SIZE = 20_000  # and of all
SCHEMA_STEPS = 100_000  # keywords evaluated and items visited to check one value; about half a second
SCHEMA_QUICK_STEPS = 1_000  # in the event loop; what takes more is checked in a thread
SCHEMA_QUICK_BYTES = 50_000  # of JSON; what is longer is checked in a thread

# models
REPLY_CHARS = 8_000_000  # text, reasoning and arguments of one reply
REPLY_CALLS = 128
SSE_LINE_BYTES = 16_000_000  # the longest line of a stream
ERROR_BODY_BYTES = 64_000  # how much of a refusal is read
CONNECT_SECONDS = 10.0
CONNECTION_STAGGER_SECONDS = 0.25  # for one of a server's addresses to answer, before the next one is tried as well
CONNECTION_IDLE_SECONDS = 15.0  # for which a connection is kept that nobody needs
CONNECTION_BUFFER_BYTES = 256_000  # of an answer that nobody has read, before its server waits
HTTP_HEAD_BYTES = 64_000  # the longest head of an answer
INFLATED_BYTES = 256_000  # made at once of an answer that comes compressed
FIRST_BYTE_SECONDS = 120.0  # until a reply begins
CHUNK_SECONDS = 60.0  # between two pieces of it
REPLY_SECONDS = 900.0  # until it ends
LAST_BYTE_SECONDS = 1.0  # for the end of an answer that has been read, so that its connection can be used again
OLLAMA_SECONDS = 0.3  # for an Ollama to say that it is there

# the demo model
DEMO_VALUE_CHARS = 200_000  # written for one schema
DEMO_VALUE_STEPS = 5_000  # schemas that are looked at for it

# tokens are estimated as characters / 4; a picture or a file counts as this many
CHARS_PER_TOKEN = 4
MEDIA_TOKENS = 1_000

# traces
PREVIEW_CHARS = 500

# docker
ENGINE_SECONDS = 20.0  # for the engine to answer
ENGINE_GRACE_SECONDS = 3.0  # for it to remove what was given up
LAUNCH_SECONDS = 60.0  # for it to make or start a container
PULL_SECONDS = 900.0
ENGINE_ANSWER_BYTES = 16_000_000  # the largest answer that is read
ENGINE_BUFFER_BYTES = 65_536  # read at once from a process in a container
DAEMON_SECONDS = 10.0  # for the daemon in a container to say that it is there
DAEMON_PAUSE_SECONDS = 5.0  # until one that could not be started is tried again
CONTAINER_FRESH_SECONDS = 1.0  # for which a container that was there is taken to be there
CONTAINER_MEMORY = 2_000_000_000
CONTAINER_PIDS = 512
CONTAINER_CPUS = 2.0
CONTAINER_TMP_BYTES = 512_000_000  # its /tmp, which is memory

# commands
COMMAND_SECONDS = 120.0  # unless the caller says otherwise
COMMAND_GRACE_SECONDS = 0.2  # between asking the processes of a command to end and killing them
END_SECONDS = 0.5  # for them to be gone then
OUTPUT_HEAD_BYTES = OUTPUT_TAIL_BYTES = 500_000  # kept of each output of a command
OUTPUT_KEEP_BYTES = 2_000_000  # the most that a caller may have kept of a head or a tail
COMMANDS_AT_ONCE = 128
COMMANDS_WAITING = 1_024
JOBS_AT_ONCE = 32
TERMINALS_AT_ONCE = 32
JOBS_KEPT = 32  # of those that have ended
JOB_OUTPUT_BYTES = 1_000_000  # the last bytes of a job's output
TERMINAL_WINDOW_BYTES = 256_000  # a terminal waits when its reader is this far behind
WIRE_LINE_BYTES = 64_000_000  # the longest request or reply
WIRE_BUFFER_BYTES = 1_000_000  # replies that wait to be read, before streams of output wait too
FILE_SECONDS = 30.0  # for a search in a workspace
DAEMON_ANSWER_SECONDS = 10.0  # for wickd to answer what takes no time
DAEMON_GRACE_SECONDS = 3.0  # past a time limit that wickd should have kept by itself
HOST_START_SECONDS = 10.0  # for wickd to start on this machine

# permissions
SHELL_CHARS = 50_000  # of a command that is read; a longer one is asked about
SHELL_COMMANDS = 200  # in it
SHELL_WORDS = 300  # of one of them
SHELL_TOKENS = 3_000  # in it, with all that is nested
SHELL_NESTED = 30  # of substitutions in substitutions
SHELL_REDIRECTS = 200
SHELL_ASSIGNMENTS = 100
SHELL_LOOSE_WORDS = 100  # of a command whose value is not certain
SHELL_TEXTS = 50  # texts in it that are commands in turn, as of `sh -c`
SHELL_ALL_WORDS = 2_000  # of all commands, also of those inside of others
SHELL_INLINE_CHARS = 100  # a command up to this length is read in the event loop
SHELL_WRAPPED = 40  # of commands in commands, as of `nice`
SHELL_NESTING = 8  # of shells in shells
SHELL_DEPTH = 200  # of brackets in brackets
RULE_CHARS = 2_000
QUESTION_CHARS = 2_000  # of arguments in a question, unless they are a command, a path or a URL
DETAIL_LINES = 200  # of an argument that are shown at once at a terminal, unless it is a command
DETAIL_CHARS = 20_000

# files
FILE_READ_BYTES = 10_000_000  # read at once, unless less is asked for
FILE_WRITE_BYTES = 40_000_000
EDIT_BYTES = 10_000_000  # the largest file that is edited
LINE_BYTES = 100_000  # shown of one line
LINES_SCAN_BYTES = 1_000_000_000  # looked through for a line's number
LIST_ENTRIES = 10_000
GLOB_FILES = 10_000
GLOB_CHARS = 4_096  # of a pattern
GLOB_ALTERNATIVES = 256  # that its braces stand for
WALK_ENTRIES = 500_000  # files and folders that one walk looks at
WALK_SECONDS = 20.0
TREE_ENTRIES = 5_000_000  # in a folder that is moved or deleted; among more, something may be protected
DELETE_SECONDS = 60.0
IGNORE_BYTES = 256_000  # of a .gitignore
IGNORE_RULES = 5_000
BINARY_HEAD_BYTES = 8_192  # a NUL among these and a file is no text
GREP_MATCHES = 1_000
GREP_BYTES = 2_000_000_000  # searched by one grep
GREP_BUFFER_BYTES = 8_000_000  # a line longer than this is searched in pieces
GREP_OVERLAP_BYTES = 64_000  # that have this much in common
GREP_LINE_CHARS = 500  # shown of a line that matched
GREP_PATTERN_CHARS = 10_000
GREP_MEMORY_BYTES = 16_000_000  # for a compiled pattern

# the local sandbox
COMMAND_MEMORY = 2_000_000_000  # of a command with all that it starts
COMMAND_PIDS = 512
PROTECTED_MOUNTS = 300  # protected paths that are mounted over; a command is refused where there are more
PLANTS_NAMED = 100  # neutralised paths that the result of a command names
GUARD_WALK_SECONDS = 60.0  # for the first walk of a workspace
WATCH_SECONDS = 1.0  # between two walks of a workspace that the kernel cannot watch
WATCH_PAUSE_SECONDS = 0.02  # between two walks that look for folders which were renamed unnoticed
WATCH_LINGER_SECONDS = 3.0  # after the program was killed, a container's workspace is watched for this long
WATCH_IDLE_SECONDS = 60.0  # a workspace without commands is watched for this long

# state
STATE_FILE_BYTES = 1_000_000  # of one file that a conversation keeps
STATE_BYTES = 10_000_000  # of all of them, with their names

# built-in tools
CALCULATE_CHARS = 2_000  # of an expression
CALCULATE_DIGITS = 4_000  # of a number in it, or on the way; Python writes no more than 4,300
CALCULATE_NESTING = 50
HTTP_SECONDS = 30.0
HTTP_BYTES = 1_000_000  # read of an answer
HTTP_BODY_BYTES = 1_000_000  # sent
HTTP_HEADERS = 50
HTTP_HEADERS_BYTES = 16_000
URL_CHARS = 8_000
SEARCH_SECONDS = 30.0
SEARCH_CHARS = 1_000  # of a query
SEARCH_RESULTS = 20

# results that are too large to be shown
RESULT_CHARS = 80_000
STREAM_CHARS = 1_000_000  # of a command's output that is shown while it runs
LONGEST_COMMAND_SECONDS = 600.0  # that a model may ask for

# todos
TODOS = 100
TODO_ID_CHARS = 64
TODO_TITLE_CHARS = 500

# memory and skills
MEMORY_FILE_BYTES = 100_000  # shown of one file
MEMORY_BYTES = 200_000  # and of all
FRONT_MATTER_BYTES = 64_000  # YAML at the top of a Markdown file
FRONT_MATTER_DEPTH = 20
SKILLS = 200  # in a catalogue
SKILL_NAME_CHARS = 64
SKILL_DESCRIPTION_CHARS = 1_024  # shown; what a skill says beyond is cut
SKILL_BYTES = 500_000  # of a SKILL.md
ARCHIVE_BYTES = 10_000_000  # of an archive as it comes
ARCHIVE_UNPACKED_BYTES = 50_000_000
ARCHIVE_ENTRIES = 2_000

# subagents
SUBAGENT_DEPTH = 3
SUBAGENT_BYTES = 256_000  # of a file that defines one
EXPIRED_AT_ONCE = 20  # threads that are deleted in one transaction, so that others can write in between
EXPIRE_SECONDS = 300.0  # between two looks for threads that are not kept any longer
TASKS_AT_ONCE = 8  # in the background of one run
TASK_PROMPT_CHARS = 100_000
TASK_DESCRIPTION_CHARS = 100  # shown to the user
TASK_ANSWER_CHARS = 100_000  # kept of what a task in the background came to
TASK_WAIT_SECONDS = 600.0  # the longest that a model may wait for one

# questions to the user
ASK_QUESTION_CHARS = 2_000
ASK_OPTIONS = 20
ASK_OPTION_CHARS = 200
ASK_ANSWER_CHARS = 10_000
ASK_TRIES = 3  # for an answer that can be used

# answers, and what an agent is told
CRITIQUE_ROUNDS = 2  # an answer that a critic does not approve goes back this often
CRITIQUE_CHARS = 60_000  # of the work that a critic is shown
OUTPUT_RETRIES = 3  # for an answer that does not fit its schema
CONTEXT_FILE_BYTES = 200_000  # of a file that stands in front of every conversation
METADATA_KEYS = 100
METADATA_KEY_CHARS = 100
METADATA_VALUE_BYTES = 10_000
METADATA_BYTES = 100_000  # of all of them, which are logged whenever one is written
TOOLS_SHOWN = 20  # more of them are hidden until they are searched for
TOOLS_LISTED = 300

# recipes
RECIPE_BYTES = 200_000
RECIPES = 500  # in one folder

# MCP servers
MCP_SECONDS = 60.0  # for a tool, a resource or a prompt
MCP_CONNECT_SECONDS = 30.0  # for a server to start and to say what it has
MCP_CLOSE_SECONDS = 2.0  # for a server to end by itself when its input has ended, and again when it is told to
MCP_MESSAGE_BYTES = 16_000_000  # the longest message of a server
MCP_STDERR_BYTES = 2_000  # the last of what a server wrote there, for the error that says it has died
MCP_TOOLS = 200  # of one server
MCP_LIST = 500  # resources or prompts of one server that are shown
MCP_DESCRIPTION_CHARS = 4_000
MCP_DEFINITION_BYTES = 100_000  # of one tool
MCP_OUTPUT_CHARS = 100_000
MCP_MEDIA_CHARS = 5_000_000  # of the pictures in one answer, in base64
MCP_PINS_BYTES = 1_000_000  # of a file with pins

# recorded runs
RUNS_RECORDED = 20
SPANS_RECORDED = 500  # of one run
TRACE_BYTES = 500_000  # of one run, as JSON

# requests to a server
HEAD_BYTES = 64_000  # of a request without its body
HEAD_SECONDS = 20.0  # in which it comes
BODY_SECONDS = 30.0  # in which the next piece of a body comes, and all of it; but longer by a second
BODY_PACE = 2_000  # for so many bytes
JSON_VALUES = 50_000  # in the JSON of one: to read it holds up everybody

# runs of a server
RUN_CRASHES = 2  # deaths of the server's process in one tool use of a run; it is not resumed after that many
MODEL_CRASHES = 25  # the same, in one model call: most of these are kills from outside

# streams of a server
READER_FRAMES = 1_000  # that wait for one reader; who has more waiting is told what they missed, later
READER_BYTES = 250_000
REPLAY_FRAMES = 200  # of what a reader has missed, sent at once
UNHEARD_RUNS = 3  # that may fail before they begin, until a message is no longer an input of the next one
STALLED_SECONDS = 60.0  # for which clients wait for a run that cannot continue because its store does not work
HEARTBEAT_SECONDS = 15.0  # between two signs of life while nothing happens

# pictures and files in messages from outside
MEDIA_CHARS = 14_000_000  # ten megabytes in base64
MEDIA_URL_CHARS = 10_000

# a model's key in what its server says went wrong
KEY_CHARS = 8  # a shorter one stands in ordinary words
REFUSED_KEY_CHARS = 4  # where the server refuses the key itself

# secrets of a server
SECRET_CHARS = 16  # a shorter one can be guessed, so it is not redacted where users see whether it was
SECRET_DISTINCT = 8  # different characters of one
SECRET_LOG_CHARS = 8  # in the operator's log shorter ones are redacted too; still shorter ones stand everywhere
SECRET_LIVE_CHARS = 512  # of an open word that live output holds back; longer secrets are looked for in parts

# agents.yaml
CONFIG_BYTES = 1_000_000
CONFIG_DEPTH = 20
CONFIG_VALUES = 20_000  # keys and values

# hook programs that are kept
WARM_LINE_BYTES = 1_000_000  # the longest line that one may print
WARM_QUEUE_BYTES = 8_000_000  # that wait for one to read them
WARM_START_SECONDS = 10.0  # for its pipes to be open
WARM_IDLE_SECONDS = 300.0  # one that nobody asks for this long is stopped
WARM_STDERR_CHARS = 500  # the last of what one printed there, for the sentence that says it has ended
WARM_BACKOFF_SECONDS = (0.1, 30.0)  # the first and the longest wait before one that failed is started again
WARM_PATIENCE_SECONDS = 0.5  # a call waits this long for a restart; one that would wait longer fails
WARM_ANSWERED = 1_000  # ids of answered calls that are remembered, to tell a second answer from a wrong one

# -- disks ----------------------------------------------------------------------------------------------------------

WORKSPACE_BYTES = 5_000_000_000  # of a workspace that a server made; at most a fourth of its disk
RESERVED_BYTES = 1_000_000_000  # of a disk, for the threads of a server; at most a tenth of it
