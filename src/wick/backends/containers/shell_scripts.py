"""The sh scripts that start and end commands in a container without wickd, and the encoding of their arguments."""

from __future__ import annotations

from wick.errors import BackendError

MARK = "WICK_CALL"

# Arguments come as octal escapes, since the engine's JSON holds only UTF-8; a dot keeps newlines at the end.
DECODE = """
text() { decoded=$(printf '%b.' "$1"); decoded=${decoded%.}; }
"""

# During a fork bomb a shell may not be able to fork. It then exits, unless the fork is inside `command eval`.

# Sends the signal $1 to all processes with the mark $mark in their environment. It uses one grep; if that cannot be
# started, it reads the files line by line.
MARKED = """
marked() {
    pids= files=
    command eval 'files=$(grep -l "WICK_CALL=$mark" /proc/[0-9]*/environ; echo "exit $?")'
    case $files in
        *"exit "[012])
            for file in ${files%exit*}; do pid=${file#/proc/} pids="$pids ${pid%/environ}"; done
            for pid in $pids; do kill -"$1" "$pid"; done
            return 0 ;;
    esac
    for place in /proc/[0-9]*; do
        pid=${place#/proc/} line=
        while read -r line || [ "$line" ]; do
            case $line in *"WICK_CALL=$mark"*) kill -"$1" "$pid"; pids="$pids $pid"; break ;; esac
            line=
        done <"$place/environ"
    done
    return 0
} 2>/dev/null
"""

# Kills all processes with the mark $mark. They are stopped first, since they could fork; once no new one appears, all
# are killed. Fails if new ones keep appearing.
SWEEP = """
sweep() {
    tries=0 before=
    while marked STOP; [ "$pids" ]; do
        [ $tries -lt 4 ] || return 1
        [ "$pids" != "$before" ] || for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
        before=$pids tries=$((tries + 1))
    done
}
"""

# Kills processes that are left although no command runs: stopped scripts of wick, and orphans with their descendants.
# Orphans are children of process 1, except its first child, which is the container's own program (so low a PID is not
# reused). If another wick process runs commands in the container, the orphans may belong to it and are left.
#
# A scan misses processes that fork all the time and take all CPU time, so all processes are stopped for the scan.
TIDY = """
parent() {
    pid=${place#/proc/} above=
    while read -r key above; do case $key$above in State:Z* | PPid:*) break ;; esac; done <"$place/status"
}
whose() {
    mine= theirs= line=
    [ "$pid" != $$ ] || return
    while read -r line || [ "$line" ]; do
        case $line in *"$mark-"*) mine=1 ;; *"wick-ru"n*) theirs=1 ;; esac
        line=
    done <"$place/cmdline"
    while read -r line || [ "$line" ]; do
        case $line in *"WICK_CALL=$mark-"*) mine=1 ;; *WICK_CALL=*) theirs=1 ;; esac
        line=
    done <"$place/environ"
}
quiet() {
    own=
    read -r _ _ _ _ last _ </proc/loadavg
    for place in /proc/[0-9]*; do
        parent
        [ "$above" != 1 ] || if [ "$own" ]; then return 1; else own=$pid; fi
    done
    read -r _ _ _ _ now _ </proc/loadavg
    [ "$now" = "$last" ] || return 1
    for place in /proc/[0-9]*; do
        parent
        [ "$above" != 0 ] || whose
        [ "$above" != 0 ] || [ ! "$mine" ] || return 1
    done
} 2>/dev/null
strangers() {
    pids= own= others= orphans= families=
    for place in /proc/[0-9]*; do
        parent
        case $above in
            Z* | "") ;;
            0) whose; if [ "$mine" ]; then pids="$pids $pid"; elif [ "$theirs" ]; then others=1; fi ;;
            1) orphans="$orphans $pid"; [ "$own" ] && [ "$own" -lt "$pid" ] || own=$pid ;;
            *) families="$families $pid:$above" ;;
        esac
    done
    [ "$others" ] || for pid in $orphans; do [ "$pid" = "$own" ] || pids="$pids $pid"; done
    more=$pids
    while [ "$more" ]; do
        more=
        for one in $families; do
            case " $pids " in *" ${one%:*} "*) ;; *" ${one#*:} "*) pids="$pids ${one%:*}"; more=1 ;; esac
        done
    done
} 2>/dev/null
nobody() {
    tries=0
    while strangers; [ "$pids" ]; do
        [ $tries -lt 100 ] || return 1
        for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
        tries=$((tries + 1))
    done
    marked KILL
}
frozen() {
    kill -STOP -1
    "$@"
    code=$?
    kill -CONT -1
    return $code
}
"""

# $1 is the folder, $2 the mark, $3 the number of input bytes, $4 the command. Messages of the outer shell about the end
# of the command do not reach the command's stderr.
RUN = f"""{DECODE}{MARKED}{SWEEP}
text "$1"
cd -- "$decoded" 2>/dev/null || {{ printf '%s' "$2" >&2; exit 125; }}
text "$4"
exec 3>&2 2>/dev/null
if [ "$3" -gt 0 ]; then
    head -c "$3" | {MARK}=$2 sh -c "$decoded" 2>&3 3>&-
else
    {MARK}=$2 sh -c "$decoded" </dev/null 2>&3 3>&-
fi
code=$? mark=$2
sweep
exit $code
"""

# $1 is the prefix of all marks of this process. Executes orders to end processes and reports the exit status; at the
# end of its input, it ends all processes with this prefix.
LIFELINE = f"""{MARKED}{TIDY}
while read -r number order mark; do
    case $order in
        TERM) frozen marked TERM ;;
        KILL) frozen marked KILL; marked KILL ;;  # one that was just becoming another program has no environment
        all) mark=$1; frozen nobody ;;
        tidy) mark=$1; quiet || frozen nobody ;;
    esac
    echo "$number $?"
done
mark=$1
frozen nobody
"""

# $1 is the folder. The mark is in the environment already.
SHELL = f"""{DECODE}
text "$1"
cd -- "$decoded" || exit 125
command -v bash >/dev/null 2>&1 && exec bash
exec sh
"""


def escaped(text: str) -> str:
    """Return an argument encoded for `printf %b`."""
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise BackendError("a text with a NUL character cannot be given to a command", "invalid")
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\0{byte:03o}" for byte in data)
