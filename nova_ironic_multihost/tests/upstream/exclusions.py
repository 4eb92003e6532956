# SPDX-License-Identifier: Apache-2.0

"""The tests of nova that our driver does not pass, and why that is right.

An entry is needed only as long as the test fails: ``test_exclusions`` runs
each excluded test and fails when it passes, when it fails for another reason,
or when nova has it no more.
"""

import dataclasses
import importlib.metadata


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Why one test of nova is not run against our driver.

    :ivar reason: what our driver does differently, as a sentence.
    :ivar shows: regular expression for what the test then ends with.
    :ivar novas: major releases of nova that have the test.
    """

    reason: str
    shows: str
    novas: tuple[int, ...] = (31, 32, 33, 34)


_TESTS = 'nova.tests.unit.virt.ironic.test_driver.'

#: nova's tests refuse questions to a database that they do not prepare.
_RECORDS = 'does not claim to use the database'

#: Of HashRing: other hosts than nova's.
_MEMBERS = r'Expected: HashRing\(.*\n *Actual: HashRing\('

_OLD_IRONIC = Exclusion(
    'an Ironic too old to list one partition ends the audit; nova would go '
    "on with everybody's nodes. Ours has asked for zones by then.", _RECORDS)

_OTHER_AUDIT = Exclusion(
    'the test counts the calls of an audit that asks the ring alone; ours '
    'asks for records too, and test_audit has a test of each rule.', _RECORDS)

_START = Exclusion(
    'nothing is named before the first audit, so that a compute service can '
    'start for the first time without Ironic.', r'returned (\[\]|0)$')

#: Classes of nova that run the tests of the driver.
_DRIVER_TESTS = ('IronicDriverTestCase', 'IronicDriverSyncTestCase')

#: id of a test -> Exclusion.
EXCLUSIONS = {
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_many_computes':
    Exclusion('who is a member is logged when it changes, by our logger.',
              "Expected 'debug' to be called once. Called 0 times"),
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_peer_list':
    Exclusion('what Ironic can filter by is asked when nodes are listed.',
              "'_can_send_version' to be called once. Called 0 times"),
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_peer_list_old_api':
    Exclusion('peer_list counts with an old Ironic, too: the audit ends when '
              'the nodes cannot be listed.', _MEMBERS),
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_peer_list_shard_and_cg':
    Exclusion('several compute services may share a shard: those that '
              'peer_list names.', _MEMBERS),
    **{_TESTS + 'NodeCacheTestCase.test__refresh_cache' + test: _OTHER_AUDIT
       for test in ('', '_multiple_services', '_our_instances',
                    '_partition_key', '_same_host_different_case', '_shard',
                    '_shard_and_conductor_group', '_their_instances')},
    _TESTS + 'NodeCacheTestCase.test__refresh_cache_partition_key_old_api':
    _OLD_IRONIC,
    _TESTS + 'NodeCacheTestCase'
    '.test__refresh_cache_shard_and_conductor_group_skip_shard':
    _OLD_IRONIC,
    **{f'{_TESTS}{case}.test_list_instance_uuids_fail': _START
       for case in _DRIVER_TESTS},
    **{f'{_TESTS}{case}.test_get_num_instances_fail':
       dataclasses.replace(_START, novas=(34,)) for case in _DRIVER_TESTS},
    **{f'{_TESTS}{case}.test_prepare_for_spawn_conflict':
       Exclusion('a build whose node another has is sent to another node.',
                 'ComputeResourcesUnavailable: Insufficient')
       for case in _DRIVER_TESTS},
}


def for_nova(major):
    """Return {id: Exclusion} of what is excluded with one release of nova.

    :param major: nova's major release, e.g. 34.
    """
    return {test_id: exclusion
            for test_id, exclusion in EXCLUSIONS.items()
            if major in exclusion.novas}


def for_installed_nova():
    """Return {id: Exclusion} of what is excluded with the nova in use."""
    return for_nova(int(importlib.metadata.version('nova').split('.')[0]))
