"""The errors that users see: one sentence that names what, where, what was found and what is expected."""


class HeaddivError(Exception):
    """Something a user can fix. The command line prints its text alone and exits with status 2."""


class ConfigError(HeaddivError):
    """A key or value of a profile or of a run's configuration is wrong.

    Attributes:
        keys: those that lead to it, where they are known.
        reason: the sentence without them and without the file.
    """

    def __init__(self, message: str, keys: tuple[str | int, ...] = (), reason: str = "") -> None:
        super().__init__(message)
        self.keys, self.reason = keys, reason or message


class DataError(HeaddivError):
    """A data file is missing, damaged or not in the form it should have."""


class NotStoredError(DataError):
    """Results that a table or a figure needs are missing."""


class TrainingError(HeaddivError):
    """A training run cannot continue (a loss that is not finite, a checkpoint of another run)."""


class DivergenceError(TrainingError):
    """A loss, a gradient or a score in training is not finite."""


class StorageError(HeaddivError):
    """A file cannot be written: no space, no permission, a file where a folder should be."""


class DamageError(HeaddivError):
    """A stored file is not what was written."""
