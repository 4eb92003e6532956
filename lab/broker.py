# SPDX-License-Identifier: Apache-2.0

"""A real RabbitMQ, nova that speaks to it, and builds that are sent over it.

What trials of builds have in common, which run in an environment with nova and
this package: lab/delivery.py, lab/forwarding.py.
"""

import argparse
import os
import pathlib
import random
import tempfile
import uuid

#: Seconds until a trial is given up; far above what it takes.
DEADLINE = 240


class Notes:
    """A file to which several processes write lines that outlive them."""

    def __init__(self, path):
        self._path = pathlib.Path(path)
        self._path.touch()

    def add(self, line):
        """Write a line, in one piece."""
        with open(self._path, 'ab', buffering=0) as file:
            file.write(line.encode() + b'\n')

    def read(self):
        """Return the lines so far."""
        return self._path.read_text().splitlines()


def parser(description):
    """Return a parser of what all trials are told."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument('--url', required=True)
    made.add_argument('--quorum', action='store_true')
    made.add_argument('--seed', type=int, default=random.randrange(10**6))
    return made


def configure(url, quorum, prefetch=0):
    """Have nova speak to the broker.

    :param quorum: with quorum queues
    :param prefetch: how many messages it may take that are not acknowledged,
        0 for any number
    """
    os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')
    from nova.compute import rpcapi
    import nova.conf
    from nova import objects
    from nova import rpc

    # No other queue of this broker is touched.
    rpcapi.RPC_TOPIC = f'trial-{uuid.uuid4()}'
    with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
        file.write('\n'.join([
            '[DEFAULT]', f'transport_url = {url}',
            f'control_exchange = {rpcapi.RPC_TOPIC}',
            '[oslo_messaging_rabbit]', f'rabbit_quorum_queue = {quorum}',
            f'rabbit_qos_prefetch_count = {prefetch}', '']))
        file.flush()
        nova.conf.CONF([], project='nova', default_config_files=[file.name])
    objects.register_all()
    rpc.init(nova.conf.CONF)


def draw(chance, number):
    """Return the uuids of so many builds."""
    return [str(uuid.UUID(int=chance.getrandbits(128)))
            for _ in range(number)]


def send(host, builds):
    """Send builds to a host, as nova's conductor does.

    :param builds: their uuids, which are those of their nodes as well
    """
    from nova.compute import rpcapi
    from nova import context
    from nova import objects

    api = rpcapi.ComputeAPI()
    for build in builds:
        api.build_and_run_instance(
            context.RequestContext('user', 'project'),
            objects.Instance(uuid=build), host, {}, None, {},
            accel_uuids=[], node=build, limits={})
