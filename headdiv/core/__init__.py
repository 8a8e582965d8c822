"""Files, paths, settings, errors, processes: what everything else stands on."""
