# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
