# SPDX-License-Identifier: Apache-2.0

"""A Prometheus that watches the lab, with the alerts for operators."""

import configparser
import json
import pathlib
import re
import signal
import subprocess
import time
import urllib.parse
import urllib.request

from lab import configuration as files
from lab import dashboard
from lab import errors
from lab import lock
from lab import options
from lab import processes
from lab import progress
from lab import services
from lab import settings as places
from lab import state

#: Seconds from scrape to scrape, and from one look at the alerts to the next;
#: and the same for alerts that are to be faster.
_INTERVAL, _SHORT_INTERVAL = 5, 2

#: Seconds that an alert goes by at least however fast it is to be, as a lab
#: that is well has them, too: from one audit to the next, say.
_LEAST = 25

_UNITS = {'s': 1, 'm': 60, 'h': 3600}
#: A range, and what an age in seconds is compared with, in an expression.
_RANGE, _BOUND = re.compile(r'\[(\d+[smh])\]'), re.compile(r'([<>]) (\d{3,})')


def register(subparsers):
    """Add ``lab monitor`` to the command line."""
    parser = subparsers.add_parser(
        'monitor', help='watch the lab with Prometheus',
        description='Start a Prometheus that scrapes the exporter for '
        'operators, which is started too, and each nova-compute that has a '
        'port for metrics; with the alerts of etc/prometheus. Prints where it '
        'is, and the alerts as they are now: again each time. Both end with '
        '"tools/lab down". Debian\'s package prometheus is unpacked below '
        'the directory of the lab the first time.',
        epilog='Example: tools/lab monitor; tools/lab compute kill compute-1; '
        'sleep 60; tools/lab monitor')
    parser.add_argument(
        '--json', action='store_true',
        help='print {"url": ..., "alerts": [...]} instead, the alerts as '
        'Prometheus has them')
    parser.add_argument(
        '--faster', type=options.positive, default=1, metavar='N',
        help='let the alerts come N times sooner: what each one waits for is '
        'divided by it, down to what a lab that is well has as well '
        f'({_LEAST} s)')
    parser.add_argument(
        '--picture', type=pathlib.Path, metavar='FILE',
        help='draw the dashboard of etc/grafana for the time since Prometheus '
        'began, as PNG')
    parser.set_defaults(func=run)


def run(args, settings):
    """Carry out ``lab monitor``; returns the exit status."""
    if state.State(settings).read()['phase'] != 'up':
        raise errors.LabError('The lab is not up; run "tools/lab up".')
    url = settings.url('prometheus')
    with lock.hold(settings.run / 'lock', 'monitor'):
        Monitor(settings, progress.Progress()).ensure(args.faster)
    if args.picture:
        dashboard.draw(
            args.picture, dashboard.read(settings.repository),
            lambda path, parameters: _ask(url, path, parameters),
            _began(url), _INTERVAL)
        print(f'{args.picture} is the dashboard.')
    alerts = _ask(url, 'alerts')['alerts']
    if args.json:
        print(json.dumps({'url': url, 'alerts': alerts}))
        return 0
    print(f'Prometheus is at {url}')
    for line in lines(alerts):
        print(line)
    return 0


class Monitor:
    """Starts what watches a lab that is up.

    :param settings: :class:`lab.settings.Settings`
    :param progress: :class:`lab.progress.Progress`
    """

    def __init__(self, settings, progress):
        self._settings = settings
        self._progress = progress
        self._processes = processes.Processes(settings.run, settings.logs)

    def ensure(self, faster=1):
        """Start what does not run.

        :param faster: how many times sooner alerts are to come
        :raises LabError: when it cannot be fetched, or does not start
        """
        self._fetch()
        files.write(self._settings.conf, {
            'rules.json': json.dumps(_rules(self._settings, faster)),
            'prometheus.json': json.dumps(
                configuration(self._settings, faster))})
        watchers = services.watchers(self._settings)
        missing = [service for service in watchers
                   if self._processes.state(service.name) == 'stopped']
        if self._processes.state('prometheus') == 'running':
            # It reads its file anew: there may be other computes by now.
            self._processes.signal('prometheus', signal.SIGHUP)
        for service in missing:
            services.start(self._settings, self._processes, service)
        services.wait(
            self._processes, missing,
            done=lambda service, seconds: self._progress.report(
                f'start {service.name}', seconds))

    def _fetch(self):
        directory = self._settings.prometheus
        if directory.exists():
            return
        log = self._settings.logs / 'install.log'
        with self._progress.step('fetch Prometheus'), open(log, 'ab') as out:
            done = subprocess.run(
                [self._settings.repository / 'tools' / 'fetch-debian',
                 'prometheus', directory],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        if done.returncode:
            raise errors.LabError(
                f'Prometheus cannot be fetched, see {log}. It takes apt-get, '
                'and its lists of packages: "sudo apt-get update".')


def configuration(settings, faster=1):
    """The file of Prometheus, as a dict.

    :param faster: how many times sooner alerts are to come
    """
    interval = f'{_INTERVAL if faster == 1 else _SHORT_INTERVAL}s'
    return {
        'global': {'scrape_interval': interval,
                   'evaluation_interval': interval},
        'rule_files': [str(settings.conf / 'rules.json')],
        'scrape_configs': [
            {'job_name': 'exporter', 'static_configs': [
                {'targets': [f'{places.HOST}:{settings.port("exporter")}']}]},
            {'job_name': 'nova-compute', 'static_configs': [
                {'targets': [f'{places.HOST}:{port}'],
                 'labels': {'host': host}}
                for host, port in _computes(settings)]}]}


def _rules(settings, faster):
    """The alerts for operators, as they are or sooner, as a dict."""
    # Imported late: the help is shown before anything is installed.
    import yaml
    path = (settings.repository / 'etc' / 'prometheus'
            / 'nova-ironic-multihost-rules.yaml')
    return hastened(yaml.safe_load(path.read_text()), faster)


def hastened(rules, faster):
    """Rules that are the same but for how long they wait.

    :param rules: a file of rules, as a dict
    :param faster: what durations and ranges are divided by, and ages with
        which something is compared; the last two stay longer than what is
        normal in a lab
    """
    return {'groups': [
        group | {'rules': [
            rule | {'for': f'{_seconds(rule["for"]) * 1000 // faster}ms',
                    'expr': _hastened(rule['expr'], faster)}
            for rule in group['rules']]}
        for group in rules['groups']]}


def _hastened(expression, faster):
    def shorter(seconds):
        return min(seconds, max(seconds // faster, _LEAST))

    expression = _RANGE.sub(
        lambda found: f'[{shorter(_seconds(found[1]))}s]', expression)
    return _BOUND.sub(
        lambda found: f'{found[1]} {shorter(int(found[2]))}', expression)


def _seconds(duration):
    return int(duration[:-1]) * _UNITS[duration[-1]]


def _computes(settings):
    """(host, port) of each nova-compute that has a port for metrics."""
    for host in state.State(settings).read().get('computes', ()):
        # Values may have a percent sign in them.
        given = configparser.RawConfigParser(strict=False)
        given.read(settings.conf / 'nova' / f'{host}.conf')
        port = given.getint(*files.METRICS_PORT, fallback=0)
        if port:
            yield host, port


def lines(alerts):
    """Alerts, one in each line, for people.

    :param alerts: as Prometheus has them
    """
    for alert in alerts or ():
        labels = dict(alert['labels'])
        name = labels.pop('alertname')
        about = labels.get('host') or labels.get('kind') or (
            labels.get('instance', ''))
        yield f'{alert["state"]:8} {name} {about}'.rstrip()
    if not alerts:
        yield 'no alert'


def _began(url):
    """Return when Prometheus first scraped, in seconds since 1970."""
    found = _ask(url, 'query', {
        'query': f'min_over_time(timestamp(up)[1h:{_INTERVAL}s])'})['result']
    return min((float(one['value'][1]) for one in found),
               default=time.time() - 60)


def _ask(url, path, parameters=()):
    """Return the data of an answer of Prometheus."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f'{url}/api/v1/{path}?'
                         + urllib.parse.urlencode(parameters),
                         timeout=30) as answer:
            return json.load(answer)['data']
    except OSError as error:
        raise errors.LabError(
            f'Prometheus does not answer: {error}; see "tools/lab logs '
            'prometheus".') from error
