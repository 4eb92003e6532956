# SPDX-License-Identifier: Apache-2.0

"""neutron's WSGI application, completed for a bare ML2.

Without service plug-ins neutron does not import the model of port
forwardings, which its ports refer to: every list of ports would be a 500.
"""

import sqlalchemy.orm

import neutron.db.models.port_forwarding  # noqa: F401
from neutron.wsgi.api import application  # noqa: F401

sqlalchemy.orm.configure_mappers()
