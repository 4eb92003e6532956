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

"""neutron's WSGI application, completed for a bare ML2.

Without service plug-ins neutron does not import the model of port
forwardings, which its ports refer to: every list of ports would be a 500.
"""

import sqlalchemy.orm

import neutron.db.models.port_forwarding  # noqa: F401
from neutron.wsgi.api import application  # noqa: F401

sqlalchemy.orm.configure_mappers()
