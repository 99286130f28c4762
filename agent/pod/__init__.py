"""Programs beside an engine in its pod: fetch its models, wait for them, report when it is
ready."""
