"""What both programs share of a command line: options, exit codes, how a status is shown."""
