#!/bin/sh
# Refuses to write a file that has a key in it. It is called once for each use of a tool.
[ "$1" = hook ] && echo before_tool_call && exit

call=$(cat)
case $call in
*'"tool_name":"file_write"'* | *'"tool_name":"file_edit"'*) ;;
*) exit 0 ;;
esac
if printf '%s' "$call" | grep -Eq 'AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY-----'; then
    echo '{"blocked": true, "reason": "there is a key in it; read it from the environment"}'
fi
