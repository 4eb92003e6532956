# SPDX-License-Identifier: Apache-2.0

"""Errors of this package, each with the remedy in its message."""

from nova import exception


class ConfigurationContradiction(exception.NovaException):
    """Settings that cannot work together, in sentences with the remedy."""

    msg_fmt = 'nova-compute cannot start: %(contradictions)s'

    def __init__(self, contradictions):
        self.contradictions = tuple(contradictions)
        super().__init__(contradictions=' '.join(self.contradictions))


class InstanceGone(exception.InstanceNotFound):
    """A build goes no further: its instance is deleted."""

    msg_fmt = 'Instance %(instance_id)s was deleted while it was built.'


class InstanceElsewhere(exception.NovaException):
    """The machine of an instance is another compute service's to change."""

    msg_fmt = ('%(name)s is not carried out here: instance %(instance)s '
               'belongs to another compute service. Nothing was changed.')
