# SPDX-License-Identifier: Apache-2.0

"""Put this package's driver in front of an operator's own driver class.

An operator's class extends nova's driver for Ironic. A method that both
override is called on this package's class first, then on the operator's, then
on nova's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import contextlib
import importlib
import inspect
import textwrap
import types
import typing

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import operations

#: Methods of nova's driver that must be called, and what they do.
NEEDED = {
    '__init__': 'sets the attributes that the other methods use',
    '_get_hypervisor_type': 'returns the hypervisor type by which nova finds '
                            'the compute services that share the nodes',
    'init_host': 'reads the compute services when this one starts',
    'prepare_for_spawn': 'writes in Ironic that the node has a server',
}

#: Methods of nova's driver that this package's driver replaces.
ANSWERED = frozenset({
    '_node_from_cache', '_refresh_cache', '_refresh_hash_ring',
    'get_available_nodes', 'get_num_instances', 'is_node_deleted',
    'list_instance_uuids'})

#: Methods of a base that are not called, or not always.
SHADOWED = ANSWERED | {'_get_node_list', 'get_info'}


class UnsupportedDriver(ImportError):
    """A class cannot be the base of this package's driver.

    nova logs an ImportError of its driver and exits with status 1.
    """

    def __init__(self, sentences: str) -> None:
        super().__init__(f'[ironic_multihost]base_driver: {sentences}')


def load(name: str) -> type[names.IronicDriver]:
    """Import the class of ``base_driver``; may raise UnsupportedDriver."""
    module, _, attribute = name.rpartition('.')
    if not module:
        raise UnsupportedDriver('It has no module: write it as MODULE.CLASS.')
    try:
        found = getattr(importlib.import_module(module), attribute)
    # Any error in the module would end nova-compute.
    except Exception as exc:
        raise UnsupportedDriver(
            f'It cannot be imported: {type(exc).__name__}: {exc}. Check that '
            "nova-compute's Python can import it, and that its name is "
            'complete, MODULE.CLASS, also below nova.virt.') from exc
    if not (inspect.isclass(found)
            and issubclass(found, names.IronicDriver)):
        raise UnsupportedDriver(
            'It does not extend the driver of the nova that is installed: '
            f'make it a subclass of {names.IronicDriver.__module__}.'
            f'{names.IronicDriver.__name__}.')
    return found


def compose(ours: type, base: type[names.IronicDriver]) -> type:
    """Return our driver class over a base, or raise UnsupportedDriver."""
    if issubclass(base, ours):
        raise UnsupportedDriver(
            f"It extends this package's driver: let it extend nova's, "
            f'{names.IronicDriver.__module__}.{names.IronicDriver.__name__}, '
            "and this package's is put in front of it.")
    if found := [*_unreached(base), *_unlike(ours, base), *_taken(ours, base)]:
        raise UnsupportedDriver(' '.join(found))
    try:
        return type(ours.__name__, (ours, base), {
            '__module__': ours.__module__, '__doc__': ours.__doc__})
    except TypeError as exc:
        raise UnsupportedDriver(
            f"This package's driver cannot be put in front of it: {exc}. Give "
            'it no metaclass of its own.') from exc


def shadowed(base: type[names.IronicDriver]) -> list[str]:
    """Return CLASS.METHOD, sorted, of a base's methods not always called."""
    return sorted(f'{owner.__name__}.{name}' for name in SHADOWED
                  for owner, _ in _overrides(base, name))


def calls_on(function: typing.Any, name: str) -> bool:
    """Whether a method seems to call the same method of its base class."""
    if isinstance(function, property):
        function = function.fget
    return any(name in _mentioned(one.__code__) or 'getattr' in
               one.__code__.co_names for one in _functions(function))


def _unreached(base):
    """Yield the needed methods of nova's that the base does not call."""
    for name, why in NEEDED.items():
        for owner, method in _overrides(base, name):
            if not calls_on(method, name):
                yield (f"{owner.__name__}.{name} does not call nova's, which "
                       f'{why}: call super().{name}() in it.')


def _unlike(ours, base):
    """Yield the methods with other parameters than nova's."""
    asked = {name for name, method in vars(ours).items()
             if inspect.isfunction(method) and calls_on(method, name)}
    for name in sorted({*operations.mutations(base), *asked}):
        method = getattr(base, name, None)
        stock = getattr(names.IronicDriver, name, None)
        if stock is None or method is stock:
            continue
        wanted = inspect.signature(stock)
        if not inspect.isfunction(method):
            yield f'{base.__name__}.{name} is no plain method: make it one.'
        elif name in asked and not _takes(method, wanted):
            yield (f"{base.__name__}.{name} does not take what nova's takes: "
                   f'give it the parameters {wanted}.')
        elif 'instance' in wanted.parameters and (
                'instance' not in apply.parameters(method)):
            yield (f'{base.__name__}.{name} has no parameter "instance": '
                   f"give it those of nova's, {wanted}; a decorator needs "
                   'functools.wraps.')


def _takes(method, wanted):
    """Whether a method accepts the parameters of a signature.

    All by position, or the required ones by position and the others by name.
    """
    required = [name for name, one in wanted.parameters.items()
                if one.default is one.empty]
    optional = [name for name in wanted.parameters if name not in required]
    for positional, keywords in ((required, optional),
                                 (required + optional, [])):
        try:
            inspect.signature(method).bind(
                *positional, **dict.fromkeys(keywords))
        except TypeError:
            continue
        return True
    return False


def _taken(ours, base):
    """Yield the names that both classes use for different things."""
    stock = names.IronicDriver
    own = {name for name in vars(ours) if not hasattr(stock, name)
           and not name.startswith('__')}
    own |= _attributes(ours.__init__) - _attributes(stock.__init__)
    for owner in (one for one in base.__mro__ if one not in stock.__mro__):
        set_there = set().union(*map(_attributes, vars(owner).values()))
        if taken := sorted(own & (vars(owner).keys() | set_there)):
            yield (f"{owner.__name__} has names that this package's driver "
                   f'uses for something else: rename {", ".join(taken)}.')


def _attributes(method) -> set[str]:
    """Return the attributes of ``self`` that a method sets."""
    found: set[str] = set()
    for one in _functions(method):
        # The source of a lambda within a line does not parse.
        with contextlib.suppress(OSError, SyntaxError):
            # The code object: a function would be unwrapped.
            source = ast.parse(textwrap.dedent(inspect.getsource(
                one.__code__)))
            found.update(_set_on_self(source.body[0]))
    return found


def _set_on_self(node: ast.AST) -> Iterator[str]:
    """Yield the attributes set on ``self``, without nested classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            continue
        if (isinstance(child, ast.Attribute)
                and isinstance(child.ctx, ast.Store)
                and isinstance(child.value, ast.Name)
                and child.value.id == 'self'):
            yield child.attr
        yield from _set_on_self(child)


def require_kept(driver: names.IronicDriver,
                 mine: typing.Mapping[str, object]) -> None:
    """Raise UnsupportedDriver if the base has replaced our attributes.

    :param mine: attribute -> value, before the base was initialized.
    """
    now = vars(driver)
    if lost := sorted(name for name, value in mine.items()
                      if now.get(name) is not value):
        raise UnsupportedDriver(
            "It sets attributes that this package's driver uses for something "
            f'else: rename {", ".join(lost)}.')


def _operator_classes(base) -> list[type]:
    """Return the classes before nova's, in the order of resolution."""
    order = base.__mro__
    return list(order[:order.index(names.IronicDriver)])


def _overrides(base, name) -> Iterator[tuple[type, typing.Any]]:
    """Return (class, attribute) of each override of nova's method."""
    return ((owner, vars(owner)[name]) for owner in _operator_classes(base)
            if name in vars(owner))


def _functions(function) -> list[types.FunctionType]:
    """Return a function and the functions that its decorators wrap."""
    found: list[types.FunctionType] = []
    pending = [function]
    while pending:
        one = pending.pop()
        if not inspect.isfunction(one) or one in found:
            continue
        found.append(one)
        pending.append(getattr(one, '__wrapped__', None))
        for cell in one.__closure__ or ():
            # ValueError: the cell is empty.
            with contextlib.suppress(ValueError):
                pending.append(cell.cell_contents)
    return found


def _mentioned(code) -> set[str]:
    """Return the names in a function's code and in nested code."""
    return set(code.co_names).union(*(
        _mentioned(one) for one in code.co_consts
        if isinstance(one, types.CodeType)))
