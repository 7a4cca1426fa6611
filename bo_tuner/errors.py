"""The one exception that a user causes and can mend."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input. The message is one line: the field, the value, what is allowed.

    The command line prints it and exits with code 2, without a traceback.
    """
