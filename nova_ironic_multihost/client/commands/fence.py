# SPDX-License-Identifier: Apache-2.0

"""fence, unfence, silent: have others take over from a dead host."""

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.peers import host_key


#: Why a server or a node may still wait; no API shows these causes.
HIDDEN_CAUSES = (
    'Servers stay with [ironic_multihost]instance_takeover = never. A node '
    'that a build was sent to waits until the build is found, for ten minutes '
    'at most. The logs of the others say what they take')


class Fence(base.ActingCommand):
    """Tell nova that a compute service is dead, so that others take over.

    POWER ITS MACHINE OFF FIRST, or end nova-compute there: this command does
    not. It forces the compute service down in nova and disables it, in one
    request. The others then take over its servers, finish its interrupted
    operations, and take its free nodes. The takeover leaves the machines of
    users alone. A repeated fence changes nothing, and shows the rest.
    """

    _epilog = """\
examples:
  nova-ironic-multihost fence compute-2 --dry-run
        who would take what, and what would stay and why; changes nothing
  nova-ironic-multihost fence compute-2 --wait 600
        tell nova, and wait for 10 minutes at most until others have it all
  nova-ironic-multihost fence compute-2 --powered-off compute-2
        its machine was powered off just now, and nova still calls it up
  nova-ironic-multihost fence compute-2 --retry 120
        as a tool gives it: nova's API may have failed with that machine

exit status: 0 done, with --wait or --dry-run: nothing is left, or would be;
1 something is left, or would be; 2 refused, or it is alive, or it cannot be
asked (standard error says what to do). Ctrl-C ends the waiting, and nothing
else.
"""

    def add_options(self, parser):
        """Add the options."""
        super().add_options(parser)
        parser.add_argument(
            '--dry-run', action='store_true',
            help='say who would take what, and change nothing')
        parser.add_argument(
            '--reason', metavar='TEXT',
            help='what nova shows as the reason, after '
            f'"{fencing.REASON}: ", also of one that is fenced already')
        parser.add_argument(
            '--wait', type=arguments.seconds, metavar='SECONDS',
            help='look until others have all that it has, at most this long '
            '(default: do not look)')
        parser.add_argument(
            '--powered-off', metavar='HOST',
            help='name the host once more to say that it is off for sure, '
            'though nova hears from it or from nobody')
        parser.add_argument(
            '--retry', type=arguments.seconds, metavar='SECONDS', default=0,
            help='try again for so long, when nova does not answer or does '
            'not yet call it down; not while heartbeats of it go on coming '
            '(default: %(default)s)')

    def take_action(self, parsed_args):
        """Fence the compute service, and watch it with --wait."""
        if parsed_args.dry_run:
            return self._dry_run(parsed_args.host)
        service, changed = self._declare(parsed_args)
        self.say(
            f'{service.host} is forced down and disabled: others take over '
            'its servers and its free nodes' if changed else
            f'{service.host} is fenced already, {base.with_reason(service)}')
        if parsed_args.wait is None:
            self.say(f'"fence {service.host} --wait 600" shows the rest. '
                     f'When it is repaired: start it, "unfence '
                     f'{service.host}"')
            return arguments.DONE
        return self._watch(service.host, parsed_args.wait)

    def _declare(self, args):
        off = args.powered_off
        if off is not None and host_key(off) != host_key(args.host):
            raise base.Refused(
                f'--powered-off names {off}, and {args.host} is to be '
                'fenced. Look which of them is off.')
        try:
            return fencing.declare(
                self.cloud, args.host, off is not None, args.reason,
                args.retry, self.tell, renew=bool(args.reason))
        except fencing.TooEarly as refused:
            raise base.Refused(
                f'{refused} Or if it is off for sure, say so: --powered-off '
                f'{args.host}.') from refused

    def _dry_run(self, host):
        known, service = self.ask(host)
        services.expect_bare_metal(self.cloud, known, service)
        refused = fencing.refusal(known, service)
        host = service.host
        found = self._forecast(self.cloud.read(), host)
        self.say(f'{host} has {found.all}')
        self.explain(found)
        if any(isinstance(target, str) for target in found.servers):
            self.say('  if [ironic_multihost]instance_takeover is not '
                     '"never", which does not show from here')
        if refused:
            raise base.Refused(f'It is refused now: {refused}.')
        return arguments.LEFT if found.stuck else arguments.DONE

    def _watch(self, host, limit):
        reads = []

        def read():
            seen = self.cloud.read()
            service = services.named(seen.services, host)
            if not service.forced_down:
                raise base.Refused(
                    f'{host} is {service.words}: somebody else has taken back '
                    'that it is forced down. Find out who, and fence it '
                    'again.')
            reads.append(service)
            if fencing.alive(reads):
                raise base.Refused(
                    f'{host} is fenced and ALIVE: nova hears from it. What it '
                    'has begun it may go on with, while others take over. '
                    'Power it off, or end nova-compute there; if it was '
                    f'fenced by mistake, "unfence {host}".')
            return self._forecast(seen, host)

        return self.follow(
            read, limit, lambda found: found.all, HIDDEN_CAUSES,
            f'{host} has nothing left: others have it all')

    def _forecast(self, seen, host):
        return forecast.of_host(seen, host, self.settings,
                                self.cloud.migrations(host=host).values())


class Unfence(base.ActingCommand):
    """Let a compute service work again that was fenced.

    START IT FIRST. This command waits for its heartbeats, ends the forced
    down state, and enables it if fence has disabled it. Servers that others
    have taken over stay there; the compute service gets its part of the free
    nodes. A repeated unfence changes nothing.
    """

    _epilog = """\
examples:
  nova-ironic-multihost unfence compute-2 --wait 600
        it was started just now, and needs some minutes for its first audit

exit status: 0 done; 2 refused, or it cannot be asked (standard error says
what to do).
"""

    def add_options(self, parser):
        """Add the option."""
        super().add_options(parser)
        parser.add_argument(
            '--wait', type=arguments.seconds, metavar='SECONDS', default=60,
            help='how long nova may need to hear from it (default: '
            '%(default)s). Its first audit comes before: some minutes with '
            'thousands of nodes')

    def take_action(self, parsed_args):
        """Wait for heartbeats, and end the fence."""
        _, service = self.ask(parsed_args.host)
        if service.forced_down:
            host, limit = service.host, parsed_args.wait
            looks = (known for _, known in self.looks(
                lambda: self.cloud.computes(host), limit, fencing.LOOKS))
            service = next(fencing.returned(looks, [host]), None)
            if not service:
                raise base.Refused(
                    f'nova has not heard from {host} for {limit:.0f} s, so it '
                    'stays fenced. Start nova-compute there, and look into '
                    'its log; with thousands of nodes give it more time '
                    '(--wait).')
        body = fencing.unwanted(service)
        self.cloud.change(service, body)
        self.say(
            f'{service.host} is no longer fenced' if body else
            f'{service.host} is not fenced: it is {service.words}')
        if service.disabled and 'status' not in body:
            self.say(f'{service.host} stays disabled, as somebody else has '
                     f'done that {base.with_reason(service)}; '
                     f'"undrain {service.host}" enables it')
        if not (service.up or service.forced_down):
            self.say(f'{service.host} is down: it takes nothing until it is '
                     'started')
        return arguments.DONE


class Silent(base.ActingCommand):
    """Say whether nova misses a compute service, and no other one.

    For a tool that powers a machine off for no other reason. No other enabled
    compute service may be silent, more than half of the others must be up,
    and none may have been fenced lately. Beside a single other compute service
    that one must be up. nova must reach each cell. It changes nothing.
    """

    _epilog = """\
examples:
  nova-ironic-multihost silent compute-2 --for 300
        nova has missed compute-2 alone for five minutes

exit status: 0 silent; 1 not silent: it is up, disabled or fenced; 2 not
known, others are silent or were fenced, too, or a heartbeat came: look
(standard error says what to do). A program tells 1 from a crash by the line
on standard output.
"""

    def add_options(self, parser):
        """Add the options."""
        super().add_options(parser)
        parser.add_argument(
            '--for', type=arguments.seconds, metavar='SECONDS', default=0,
            dest='seconds', help='look for so long (default: once)')
        parser.add_argument(
            '--within', type=arguments.seconds, metavar='SECONDS',
            default=3600, help='count the fences of so many seconds '
            '(default: %(default)s)')

    def take_action(self, parsed_args):
        """Look at all compute services, until the time is over."""
        seen = set()
        for _, known in services.looks(
                lambda: self.cloud.computes(parsed_args.host),
                parsed_args.seconds):
            service = services.named(known, parsed_args.host)
            if not fencing.missed(service):
                self.say(f'{service.host} is not silent: it is '
                         f'{service.words}')
                return arguments.LEFT
            refused = fencing.not_alone(
                known, service, self.cloud.nova.at, parsed_args.within)
            if refused:
                raise base.Refused(f'{refused}.')
            seen.add(service.seen)
            if len(seen) > 1:
                raise base.Refused(
                    f'nova calls {service.host} down, but a heartbeat came, '
                    'or somebody changed it. Compare the clocks of the '
                    'controllers, and ask again.')
        services.expect_bare_metal(self.cloud, known, service)
        self.say(f'{service.host} is silent, and no other compute service is')
        return arguments.DONE
