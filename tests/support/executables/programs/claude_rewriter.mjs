#!/usr/bin/env node
// A hook for Claude Code: every listing is a long one.
import { readFileSync } from "node:fs";

const told = JSON.parse(readFileSync(0, "utf8"));
const command = `${told.tool_input.command} ${process.argv[2]}`;
console.log(
  JSON.stringify({
    hookSpecificOutput: {
      hookEventName: told.hook_event_name,
      permissionDecision: "allow",
      updatedInput: { ...told.tool_input, command },
    },
  }),
);
