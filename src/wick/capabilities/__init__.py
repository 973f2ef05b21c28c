"""What agents can do, one capability a file. Each stands on its own, and none knows another."""
