"""The ledger: every number the papers report, and its verdict."""
