"""What decides: how what is wanted differs from what runs, and what to do about it. Pure."""
