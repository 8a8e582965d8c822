"""The report of a profile: a static site of its executed notebooks, tables and figures."""
