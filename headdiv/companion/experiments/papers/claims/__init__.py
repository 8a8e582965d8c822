"""What each paper claims, as typed records: a file a paper."""
