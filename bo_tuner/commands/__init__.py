"""The commands of ``bo-tuner``, one module each.

A module's docstring is its help text, ``add_arguments`` declares its arguments and ``run`` does the work. Only ``run``
imports what it needs, so that ``bo-tuner --help`` answers at once.
"""
