"""How `make test` runs the tests: what is built first, who runs what and when, and what is said."""
