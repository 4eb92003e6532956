# SPDX-License-Identifier: Apache-2.0

"""What this lab is doing, written down for the next command."""

import json
import os


class State:
    """The state file: base port, phase and shape of the stack.

    Phases are 'down', 'starting' (also: an ``up`` that did not finish)
    and 'up'. Replaced whole, so a reader never sees half of it.

    :param settings: :class:`lab.settings.Settings`
    """

    def __init__(self, settings):
        self._path = settings.state_file
        self._base_port = settings.base_port

    def read(self):
        """The state as a dict; 'down' when there is none to read."""
        try:
            return json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {'phase': 'down'}

    def write(self, phase, **shape):
        """Replace the state.

        :param shape: computes, nodes, driver, options, release, since
        """
        state = {'base_port': self._base_port, 'phase': phase} | shape
        draft = self._path.with_suffix('.new')
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(state, indent=1) + '\n')
        os.replace(draft, self._path)
