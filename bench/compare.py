#!/usr/bin/env python3
"""Lays copes beside its peers: every table of xopes' published benchmarks, a column for each provider.

Writes results.json, report.md and plots into --out. A run that was stopped goes on where it was; --quick measures a few
rows of each table, and a run without it then adds the rest."""

from comparison.command import main

# Nothing more is imported here: the processes that compile ahead import this file under another name, and PyTorch's keys
# of what it compiled tell where they first saw it.
if __name__ == "__main__":
    main(__doc__)
