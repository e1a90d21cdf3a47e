"""Charts: one module per question, one visual language (`language`), one way to read an analysis (`data`).

Each module has its query and says in a sentence what the rows answer; `figure.Figure` is what the report gets. Nothing here
writes a file or knows HTML. This package re-exports nothing.
"""
