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


"""The module that nova imports as ``nova.virt.ironic_multihost``."""

from nova_ironic_multihost import composition

__all__ = ('IronicMultiHostDriver',)  # noqa: F822


def __getattr__(name):
    """Return the driver; say what to set if ``compute_driver`` is another.

    nova asks for it when its options are read, and not before.

    :raises UnfitError: with the ``base_driver`` of nova.conf there is none.
    """
    if name in __all__:
        return composition.configured()
    raise AttributeError(
        f'nova-ironic-multihost has no driver {name!r}: set compute_driver = '
        f'ironic_multihost.IronicMultiHostDriver in nova.conf')
