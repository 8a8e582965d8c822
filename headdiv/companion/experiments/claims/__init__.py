"""The ledger of the papers' claims: what their own numbers contradict, parameter counts, and what runs measured."""
