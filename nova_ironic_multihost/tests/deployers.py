# SPDX-License-Identifier: Apache-2.0

"""The tools that deploy nova, where they can be had."""

import os
import pathlib

#: tools/test says here where tools/fetch-deployers has put kolla and
#: kolla-ansible: then the tests that need them are run.
PACKAGES = 'DEPLOYERS'

#: Where there are checkouts of those that no package index has, each named
#: like its repository, the tests that need them are run.
CHECKOUTS = 'DEPLOYER_CHECKOUTS'


def packages(test, name):
    """{version: directory} of a tool, of each release that was fetched.

    Skip the test if there is none and nobody has promised one.

    :param test: the test case.
    :param name: kolla or kolla-ansible.
    """
    promised = os.environ.get(PACKAGES)
    if not promised:
        test.skipTest(f'{PACKAGES} does not say where tools/fetch-deployers '
                      f'has put {name}.')
    found = {path.name.rpartition('-')[2]: path
             for path in pathlib.Path(promised).glob(f'{name}-[0-9]*')}
    if not found:
        test.fail(f'There is no {name} in {promised}: run '
                  'tools/fetch-deployers, or see why tools/test could not: '
                  '.tools/logs/install-deployers.log')
    return found


def checkout(test, name):
    """The directory of a checkout; skip the test if none is named.

    :param test: the test case.
    :param name: of its repository.
    """
    place = os.environ.get(CHECKOUTS)
    if not place:
        test.skipTest(f'{CHECKOUTS} does not say where {name} is.')
    found = pathlib.Path(place, name)
    if not found.is_dir():
        test.fail(f'There is no checkout of {name} in {place}.')
    return found

