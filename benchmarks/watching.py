# SPDX-License-Identifier: Apache-2.0

"""A driver that polls as it does in a nova-compute, and notes what it sees."""

import time

STATES = 'states'
REPORTS = 'reports'


class Watching:
    """Polls every few seconds, in a thread of its own.

    nova's tracker takes part: what it has reported of a node is in placement.

    :param driver: has audited once.
    :param pause: seconds from the beginning of a poll to the next one.
    """

    def __init__(self, driver, pause):
        from nova_ironic_multihost.engine.base import periodic

        self._driver = driver
        #: [moment, {uuid: content, '' if it is there, None if it is gone}]
        self._states = []
        #: [moment, uuid, content]
        self._reports = []
        self._wrap_read(driver.service.lister)
        self._wrap_audit(driver.service.tracker)
        self._polls = periodic.PeriodicThread('ironic', {
            'ironic_changes': (
                driver.service.nodes.poll_ironic, lambda: pause),
            'background_audit': (
                driver.service.background_audit.once, lambda: pause)})
        self._polls.start()

    def _wrap_read(self, reader):
        read = reader.read

        def noted(*args, **kwargs):
            mirror = read(*args, **kwargs)
            self._note(mirror, mirror.changed_since(self._serial)
                       | self._there - mirror.nodes.keys())
            return mirror

        reader.read = noted
        self._note(reader.mirror, reader.mirror.nodes)

    def _note(self, mirror, nodes):
        self._serial = mirror.serial
        self._there = frozenset(mirror.nodes)
        self._states.append([time.time(), {
            node: content(mirror, node) for node in nodes}])

    def _wrap_audit(self, tracker):
        audit = tracker.audit

        def noted(node):
            audit(node)
            self._reports.append(
                [
                    time.time(),
                    node,
                    content(self._driver.service.lister.mirror, node),
                ])

        tracker.audit = noted

    def end(self):
        """Stop; return what was seen and what was reported, and the end.

        The last of the states is that of the mirror and all that it has.
        """
        self._polls.stop()
        mirror = self._driver.service.lister.mirror
        self._note(mirror, mirror.nodes)
        return {STATES: self._states, REPORTS: self._reports}


def contents(mirror):
    """Return {uuid: content} of all nodes of a mirror."""
    return {node: content(mirror, node) for node in mirror.nodes}


def content(mirror, node):
    """Return what a mirror has of a node, the traits in their order."""
    if node not in mirror.nodes:
        return None
    body = mirror.bodies.get(node)
    if body is None:
        return ''
    # In the process that is measured nova's options come first.
    from nova_ironic_multihost.adapters import ironic

    found = ironic.content(body)
    return {**found, 'traits': sorted(found['traits'])}
