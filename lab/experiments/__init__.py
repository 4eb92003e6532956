# SPDX-License-Identifier: Apache-2.0

"""The experiments of ``tools/lab run``: one module, or package, for each.

The docstring of an experiment says what it does, what its figures mean and
what they must be; it is what ``tools/lab run NAME --help`` prints. It has

``run(bench)``
   does it; returns the figures as a dict
``failures(figures)``
   returns a sentence for each figure that is not what it must be for this
   project's driver; every experiment also wants the lab consistent at its
   end

and, where it needs them,

``NEEDS``
   a :class:`lab.bench.wanted.Wanted`: the lab that it is for, where not any
   will do; ``needs(args)`` instead, where that depends on its own options
``COLD``
   true for one that begins with computes which were never started
``install(args, settings, progress)``
   installs what it needs besides the lab, before one is brought up
``add_options(parser)``
   adds its own options to the command line
``choices(args)``
   returns what it makes of them: keyword arguments of its ``run``

The command line is made before anything is installed: an experiment imports
nothing at its top but the standard library and what gets by with it.
"""

import importlib

# In the order in which --help lists them.
NAMES = (
    'steady',
    'healthy',
    'burst',
    'coldstart',
    'kill',
    'reaction',
    'restart',
    'freeze',
    'add',
    'drain',
    'fence-alive',
    'rbac-slip',
    'deadops',
    'dead-fenced',
    'evacuate',
    'split-brain',
    'split-brain-watchdog',
    'churn',
    'outage',
    'clock',
    'upgrade',
    'rolling',
    'rolling-restart',
    'build-restart',
    'slow-stop',
    'release-upgrade',
    'scheduler',
    'tempest',
)


def load(name):
    """The module of an experiment.

    :param name: one of :data:`NAMES`
    """
    return importlib.import_module(f'{__name__}.{name.replace("-", "_")}')
