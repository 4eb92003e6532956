# SPDX-License-Identifier: Apache-2.0

"""drain, undrain: move the free nodes off a compute service, and undo it."""

import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import services

#: The default disabled_reason of a drained compute service.
REASON = 'nova-ironic-multihost: drained'

#: Why a free node may still wait; no API shows these causes.
HIDDEN_CAUSES = (
    'Others take free nodes with their audits, every minute as a rule, '
    'when they have been up and enabled for two of them; a node that a build '
    'is on its way to after that; none with '
    '[ironic_multihost]pulls_per_audit = 0')


def refusal(known: tuple[cloud_state.Service, ...],
            service: cloud_state.Service) -> str:
    """Return why the last compute service that gets builds is not drained."""
    outage = fencing.outage(known)
    if outage:
        return outage
    spare = sorted(s.host for s in known
                   if s.up and s.disabled and s.key != service.key)
    remedy = (f'enable another one first ("undrain {spare[0]}")' if spare
              else 'start another one first')
    return (f'Besides {service.host} no compute service is enabled and up: '
            'every build would end in ERROR, and nobody would take its nodes. '
            f'So {remedy}; or say --even-if-last')


def wanted(service: cloud_state.Service,
           reason: str | None) -> dict[str, typing.Any]:
    """Return the request to nova that drains it, {} if it is drained.

    :param reason: new disabled_reason; None keeps the present one, or sets
        :data:`REASON`
    """
    # Its next start removes a stop marker and enables it, and unfence enables
    # it after a fence. Neither counts as drained.
    drained = service.disabled and not (
        service.stop_marker or service.reason.startswith(fencing.REASON))
    if drained and reason in (None, '', service.reason):
        return {}
    return {'status': 'disabled', 'disabled_reason': reason or REASON}


class Drain(base.ActingCommand):
    """Move the free nodes of a compute service to the others.

    It disables the compute service in nova. nova sends no more builds there,
    and the others take its free nodes, a part with each audit. Its nodes with
    servers stay and work as before, until the servers are deleted. A repeated
    drain changes nothing, and shows the nodes that are left.
    """

    _epilog = """\
examples:
  nova-ironic-multihost drain compute-2 --reason 'new memory' --wait 900
        disable it, and wait for 15 minutes at most until it has no free node
  nova-ironic-multihost drain compute-2 --wait 0
        how far is it?

exit status: 0 done, with --wait: it has no free node; 1 free nodes are left
when the time is over; 2 refused, or it cannot be asked (standard error says
what to do). Ctrl-C ends the waiting, and nothing else.
"""

    def add_options(self, parser):
        """Add the options."""
        super().add_options(parser)
        parser.add_argument(
            '--reason', metavar='TEXT',
            help='what nova shows as the reason (default: the one that is '
            f'there, or "{REASON}")')
        parser.add_argument(
            '--wait', type=arguments.seconds, metavar='SECONDS',
            help='look until it has no free node, at most this long '
            '(default: do not look)')
        parser.add_argument(
            '--even-if-last', action='store_true',
            help='also if no other compute service is enabled and up')

    def take_action(self, parsed_args):
        """Disable the compute service, and watch it with --wait."""
        known, service = self.ask(parsed_args.host)
        services.expect_bare_metal(self.cloud, known, service)
        body = wanted(service, parsed_args.reason)
        if body and not (parsed_args.even_if_last
                         or self._taken(known, service)):
            raise base.Refused(f'{refusal(known, service)}.')
        self.cloud.change(service, body)
        self.say(
            f'{service.host} is disabled: no build is sent to it, and others '
            'take its free nodes' if body else
            f'{service.host} is disabled already, {base.with_reason(service)}')
        if not all(one.reached for one in known):
            self.say('Whether another compute service of bare metal is '
                     'enabled and up is not known: nova does not reach each '
                     'cell. If there is none, nobody takes the nodes, and '
                     f'builds end in ERROR: "undrain {service.host}" undoes '
                     'it')
        if not service.up:
            self.say(f'{service.host} is down: others take over its servers '
                     'when it is fenced, not when it is drained')
        if parsed_args.wait is None:
            self.say(f'"drain {service.host} --wait 900" shows the rest, '
                     f'"undrain {service.host}" undoes it')
            return arguments.DONE
        return self._watch(service.host, parsed_args.wait)

    def _taken(self, known, service):
        """Return whether another one takes its nodes, as far as is known."""
        return any(other.up and not other.disabled and other.id != service.id
                   and not services.has_virtual_machines(
                       self.cloud, known, other) for other in known)

    def _watch(self, host, limit):
        def read():
            seen = self.cloud.read()
            service = services.named(seen.services, host)
            if not service.disabled or service.stop_marker:
                raise base.Refused(
                    f'{host} is {service.words}: it was enabled, '
                    'or stopped, by somebody else. Drain it again.')
            return forecast.of_host(seen, host, self.settings, drained=True)

        return self.follow(
            read, limit, lambda found: found.free, HIDDEN_CAUSES,
            f'{host} is empty of free nodes')


class Undrain(base.ActingCommand):
    """Enable a compute service, so that it gets nodes and builds again.

    It undoes drain. When the compute service has been up for some audits it
    takes its part of the free nodes. A repeated undrain changes nothing.
    """

    _epilog = """\
examples:
  nova-ironic-multihost undrain compute-2

exit status: 0 done; 2 refused, or it cannot be asked (standard error says
what to do).
"""

    def take_action(self, parsed_args):
        """Enable the compute service."""
        _, service = self.ask(parsed_args.host)
        if service.forced_down:
            raise base.Refused(
                f'{service.host} is {service.words}: somebody has '
                'made sure that it is dead. Start it, and take that back '
                f'with "unfence {service.host}".')
        if not service.disabled:
            self.say(f'{service.host} is enabled already')
            return arguments.DONE
        self.cloud.change(service, {'status': 'enabled'})
        self.say(f'{service.host} is enabled: it takes its part of the free '
                 'nodes within some audits, a minute each as a rule')
        if service.reason not in ('', service.stop_marker, REASON):
            self.say(f'{service.host} was disabled for: {service.reason}')
        if not service.up:
            self.say(f'{service.host} is down: it takes nothing until it is '
                     'started')
        elif service.stop_marker:
            self.say(f'{service.host} was told to end: builds are sent to '
                     'it again, and wait until it is started')
        return arguments.DONE
