# SPDX-License-Identifier: Apache-2.0

"""Several real nova-computes with our driver, in one process.

nova's API, conductor, scheduler and computes and the real placement run on
nova's own functional fixtures; Ironic is the real one, in a process of its
own (:mod:`.ironic`). Needs nova, openstack-placement and python-ironicclient
in this environment, and ironic here or where ``IRONIC_BIN`` points.
"""

from importlib import metadata
import os

# nova's tests choose eventlet unless told otherwise, nova-compute from 34 on
# chooses native threads. Test what is deployed.
if int(metadata.version('nova').partition('.')[0]) >= 34:
    os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

# Importing it settles the threading mode, before anything else can.
import nova.tests.functional  # noqa: F401
