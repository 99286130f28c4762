"""A web server in a thread beside the loop that never holds it up. Says nothing by itself."""
