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

"""The tests of nova that our driver does not pass, and why that is right.

An entry is needed only as long as the test fails: ``test_exclusions`` runs
each excluded test and fails when it passes, or when nova has it no more.
"""

import dataclasses
import importlib.metadata


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Why one test of nova is not run against our driver.

    :ivar reason: what our driver does differently, as a sentence.
    :ivar novas: major releases of nova that have the test.
    """

    reason: str
    novas: tuple[int, ...] = (31, 32, 33, 34)


_TESTS = 'nova.tests.unit.virt.ironic.test_driver.'

_OLD_IRONIC = Exclusion(
    'an Ironic too old to list one partition ends the audit; nova would go '
    "on with everybody's nodes.")

#: id of a test -> Exclusion.
EXCLUSIONS = {
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_many_computes':
    Exclusion('who is a member is logged when it changes, by our logger.'),
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_peer_list':
    Exclusion('what Ironic can filter by is asked when nodes are listed.'),
    _TESTS + 'HashRingTestCase.test__refresh_hash_ring_peer_list_old_api':
    _OLD_IRONIC,
    _TESTS + 'NodeCacheTestCase.test__refresh_cache_partition_key_old_api':
    _OLD_IRONIC,
    _TESTS + 'NodeCacheTestCase'
    '.test__refresh_cache_shard_and_conductor_group_skip_shard':
    _OLD_IRONIC,
}


def for_nova(major):
    """Return {id: reason} of what is excluded with one release of nova.

    :param major: nova's major release, e.g. 34.
    """
    return {test_id: exclusion.reason
            for test_id, exclusion in EXCLUSIONS.items()
            if major in exclusion.novas}


def for_installed_nova():
    """Return {id: reason} of what is excluded with the nova in use."""
    return for_nova(int(importlib.metadata.version('nova').split('.')[0]))
