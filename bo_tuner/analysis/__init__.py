"""From tidy frames of studies to curves, intervals, tables and plots. Nothing here knows a kernel or a file.

The tidy frame has one row a trial: ``task``, ``method``, ``seed``, ``trial`` (from 1) and ``efficiency``, the
efficiency of the best config measured so far (0 while none was correct).
"""
