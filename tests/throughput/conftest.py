"""What recorded launches execute is shared with the other folders that compare it."""

import kept_work  # noqa: F401 - it has compare_work keep what it works out
