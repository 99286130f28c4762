"""The real commands against real repositories, real pushes and a real llama.cpp."""
