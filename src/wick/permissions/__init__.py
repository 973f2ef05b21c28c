"""Permission rules: the rules, their specifiers, and two independent readers of shell commands."""
