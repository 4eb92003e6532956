# SPDX-License-Identifier: Apache-2.0

"""Run nova-compute up to the load of its driver, then say what it loaded.

Run as a script by a child interpreter::

    python until_loaded.py script PATH_OF_NOVA_COMPUTE [ARGUMENTS]
    python until_loaded.py module MODULE [ARGUMENTS]

Nothing of nova is imported or changed before the program itself imports
nova.service; then the four places are cut off that need a message bus: the
two questions to a conductor before and after the load, and serving. One line
of the output is :data:`MARK` and a JSON object.
"""

import importlib.abc
import importlib.machinery
import json
import runpy
import sys

MARK = 'loaded: '


def describe(service, *args, **kwargs):
    """Print what a nova.service.Service loaded.

    :param service: nova-compute's service, complete but not started.
    """
    from nova.virt.ironic import driver as stock

    import nova_ironic_multihost

    driver = service.manager.driver
    print(MARK + json.dumps({
        'class': f'{type(driver).__module__}.{type(driver).__qualname__}',
        'is_stock_subclass': isinstance(driver, stock.IronicDriver),
        'eventlet_patched': is_patched(),
        'package': nova_ironic_multihost.__path__[0],
    }), flush=True)


def is_patched():
    """Tell whether eventlet has replaced the threads of this process."""
    patcher = sys.modules.get('eventlet.patcher')
    return bool(patcher and patcher.is_monkey_patched('thread'))


def cut_off(module):
    """Replace in nova.service what needs a message bus.

    :param module: nova.service.
    """
    def nothing(*args, **kwargs):
        return None

    module.conductor.API.wait_until_ready = nothing
    module.utils.raise_if_old_compute = nothing
    module.serve = describe
    module.wait = nothing


class ServiceFinder(importlib.abc.MetaPathFinder):
    """Has :func:`cut_off` called as soon as nova.service is imported."""

    def find_spec(self, fullname, path, target=None):
        """Return nova.service's own spec with one step more to it."""
        if fullname != 'nova.service':
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            cut_off(module)

        spec.loader.exec_module = exec_module
        return spec


if __name__ == '__main__':
    _, kind, program, *arguments = sys.argv
    sys.argv = [program, *arguments]
    sys.meta_path.insert(0, ServiceFinder())
    run = {'script': runpy.run_path, 'module': runpy.run_module}[kind]
    run(program, run_name='__main__')
