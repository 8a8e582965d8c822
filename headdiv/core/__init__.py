"""Files, settings, errors, number formats, ranks: what everything else stands on."""
