"""Change the code at one point at a time, and see whether a test fails: see ``__main__.py``."""
