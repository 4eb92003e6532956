# SPDX-License-Identifier: Apache-2.0

"""What lab an experiment needs, and whether one that is up will do."""

import dataclasses

from lab import errors

#: What a lab is brought up with where anything will do.
COMPUTES = 3
NODES = 30
DRIVER = 'ours'

# With native threads nova does as many builds as the larger of the two says.
AT_ONCE = ('DEFAULT.max_concurrent_builds',
           'DEFAULT.max_concurrent_snapshots')


def at_once(builds):
    """Options with which a compute carries out so many at a time."""
    return tuple(f'{option}={builds}' for option in AT_ONCE)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What lab an experiment is asked for; None where anything will do."""

    computes: int | None = None
    nodes: int | None = None
    driver: str | None = None
    options: tuple = ()

    def asked(self, computes, nodes, driver, options=()):
        """This with what the command line says, where this says nothing.

        :param options: to be set besides those of this
        :raises LabError: when the command line says something else
        """
        given = {'computes': computes, 'nodes': nodes, 'driver': driver}
        for name, value in given.items():
            mine = getattr(self, name)
            if mine is not None and value not in (None, mine):
                raise errors.LabError(
                    f'This experiment begins with --{name} {mine}; leave '
                    f'--{name} {value} out.')
        return dataclasses.replace(
            self, options=(*self.options, *options),
            **{name: value for name, value in given.items()
               if value is not None})

    @property
    def complete(self):
        """Computes, nodes, driver and options of the lab to bring up."""
        return (self.computes or COMPUTES, self.nodes or NODES,
                self.driver or DRIVER, self.options)

    def made(self, shape):
        """Whether a lab that is up is the very one to bring up for this.

        :param shape: what :meth:`lab.stack.Stack.shape` returned
        """
        return self.complete == (
            len(shape['computes']), shape['nodes'], shape['driver'],
            tuple(shape['options']))

    def differs(self, shape):
        """How a lab that is up differs from this, in words, or ''.

        :param shape: what :meth:`lab.stack.Stack.shape` returned
        """
        pairs = [('computes', self.computes, len(shape['computes'])),
                 ('nodes', self.nodes, shape['nodes']),
                 ('driver', self.driver, shape['driver'])]
        found = [f'{label} {is_} instead of {wanted}'
                 for label, wanted, is_ in pairs
                 if wanted is not None and wanted != is_]
        found += [f'not up with --set {option}' for option in self.options
                  if option not in shape['options']]
        return ', '.join(found)
