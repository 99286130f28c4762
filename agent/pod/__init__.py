"""Beside an engine in its pod: fetches its models, waits for them, says when it is ready."""
