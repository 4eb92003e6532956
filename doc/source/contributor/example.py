# SPDX-License-Identifier: Apache-2.0

"""A compute service dies, and its nodes go to others."""

import logging

from nova_ironic_multihost.tests.simulation.test_simulation import Simulation

logging.disable(logging.CRITICAL)
state = Simulation()
state.begin(number=3, nodes=8, delay=0, limit=200, started=True,
            when='forced_down', zones=[])
state.boot(index=0, steps=3)
state.stop(index=0, graceful=False)
state.audit_all(rounds=2)
state.teardown()
