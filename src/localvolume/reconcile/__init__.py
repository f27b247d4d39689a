"""The machine that every role runs on: the loop that looks, and what it does at most once a key."""
