"""Settings for all tests: hypothesis without a clock and always with the same examples."""

from hypothesis import settings

settings.register_profile("headdiv", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("headdiv")
