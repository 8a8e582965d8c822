"""The repository's own files: beside them there may be profiles and results of whoever works in it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def git_files(*patterns, untracked=False):
    """Paths of the files in git (and, if asked, of new ones that git does not ignore) that exist."""
    options = ["--cached", "--others", "--exclude-standard"] if untracked else ["--cached"]
    listed = subprocess.run(
        ["git", "ls-files", "-z", *options, "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = (ROOT / name for name in sorted(set(listed.split("\0")) - {""}))
    return [path for path in paths if path.is_file()]
