"""What a GGUF file's header says, read within limits."""
