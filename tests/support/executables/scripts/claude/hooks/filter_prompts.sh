#!/bin/sh
# Keeps prompts with a password in them from leaving this machine.
if grep -Eiq 'password *[:=]'; then
    echo "take the password out of your message" >&2
    exit 2
fi
