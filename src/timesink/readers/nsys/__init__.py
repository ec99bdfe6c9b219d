"""Nsight Systems exports: the same tables, whether they lie in SQLite or in a folder of Parquet or Arrow files.

`export` says which tables and columns are read; `database` and `folder` fetch them; the other modules turn them into
canonical tables, one module per kind of event; `assemble` makes the trace.
"""
