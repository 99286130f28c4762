"""What an agent and who asks it for a log agree on. Pure."""

CURSOR_HEADER = "Fleet-Log-Cursor"
MOST_LOG_LINES = 10_000  # in one answer
MOST_LOG_BYTES = 4 << 20
