"""One service's process: how it is started, watched, changed and ended, and known again."""
