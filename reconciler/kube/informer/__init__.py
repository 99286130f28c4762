"""What is there, kept current by watches."""
