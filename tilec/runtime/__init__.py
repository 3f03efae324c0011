"""Arrays, launches and child processes: what happens when a kernel is called from Python."""
