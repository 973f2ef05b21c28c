"""What the local backend confines commands with: the sandboxes, their limits, and what is protected meanwhile."""
