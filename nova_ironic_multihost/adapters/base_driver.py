# SPDX-License-Identifier: Apache-2.0


"""Another class in the place of nova's own driver, below this package's.

Operators have drivers of their own, which extend nova's for Ironic. This
package's is put in front of such a class: what both override is asked of this
package's first, which asks theirs, which asks nova's.
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

#: Methods of nova's driver that must be reached, and what for.
NEEDED = {
    '__init__': 'makes what the other methods work with',
    '_get_hypervisor_type': 'says by what the compute services that share '
                            'the nodes are found',
    'init_host': 'finds out who is there when the service starts',
    'prepare_for_spawn': 'reserves a node in Ironic, by which it is known '
                         'that it has a server',
}

#: Methods of nova's driver that this package's answers itself.
ANSWERED = frozenset({
    '_node_from_cache', '_refresh_cache', '_refresh_hash_ring',
    'get_available_nodes', 'get_num_instances', 'is_node_deleted',
    'list_instance_uuids'})

#: The same, if there is no need to ask; and what those would have asked.
SHADOWED = ANSWERED | {'_get_node_list', 'get_info'}


class UnsupportedDriver(ImportError):
    """A class cannot stand below this package's driver; says what to change.

    nova logs an ImportError of its driver, and ends with status 1.

    :param sentences: str, with the remedy.
    """

    def __init__(self, sentences: str) -> None:
        super().__init__(f'[ironic_multihost]base_driver: {sentences}')


def load(name: str) -> type[names.IronicDriver]:
    """Import a class that is to be the base.

    :param name: MODULE.CLASS.
    :raises UnfitError: it cannot be imported, or is no such class; the message
        says what to do.
    """
    module, _, attribute = name.rpartition('.')
    if not module:
        raise UnsupportedDriver('It has no module: write it as MODULE.CLASS.')
    try:
        found = getattr(importlib.import_module(module), attribute)
    # Whatever it is, nova-compute would end with it.
    except Exception as exc:
        raise UnsupportedDriver(
            f'It cannot be imported: {type(exc).__name__}: {exc}. See that '
            'the Python of nova-compute can import it, and that it is named '
            'in full, MODULE.CLASS, also if it is below nova.virt.') from exc
    if not (inspect.isclass(found)
            and issubclass(found, names.IronicDriver)):
        raise UnsupportedDriver(
            'It does not extend the driver of the nova that is installed: '
            f'make it a subclass of {names.IronicDriver.__module__}.'
            f'{names.IronicDriver.__name__}.')
    return found


def compose(ours: type, base: type[names.IronicDriver]) -> type:
    """Return a class that is this package's driver over another base.

    :param ours: this package's driver.
    :raises UnfitError: that would not work; says what to change, in one
        sentence for each thing.
    """
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
    """Return the methods of a base that are not called, or not always.

    :returns: CLASS.METHOD, sorted.
    """
    return sorted(f'{owner.__name__}.{name}' for name in SHADOWED
                  for owner, _ in _overrides(base, name))


def calls_on(function: typing.Any, name: str) -> bool:
    """Whether a method calls that of its base class, as far as can be seen.

    :param function: as it stands in the class.
    :param name: of the method.
    """
    if isinstance(function, property):
        function = function.fget
    return any(name in _mentioned(one.__code__) or 'getattr' in
               one.__code__.co_names for one in _functions(function))


def _unreached(base):
    """Say which methods of nova's are needed and not reached."""
    for name, why in NEEDED.items():
        for owner, method in _overrides(base, name):
            if not calls_on(method, name):
                yield (f"{owner.__name__}.{name} does not call nova's, which "
                       f'{why}: call super().{name}() in it.')


def _unlike(ours, base):
    """Say which methods cannot be called as nova's are."""
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
    """Whether it can be called with all parameters, in one of two ways."""
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
    """Say which names mean one thing there and another here."""
    stock = names.IronicDriver
    own = {name for name in vars(ours) if not hasattr(stock, name)
           and not name.startswith('__')}
    own |= _attributes(ours.__init__) - _attributes(stock.__init__)
    for owner in (one for one in base.__mro__ if one not in stock.__mro__):
        set_there = set().union(*map(_attributes, vars(owner).values()))
        if taken := sorted(own & (vars(owner).keys() | set_there)):
            yield (f"{owner.__name__} has names that this package's driver "
                   f'has for something else: rename {", ".join(taken)}.')


def _attributes(method) -> set[str]:
    """Return the attributes of ``self`` that a method sets, as it shows."""
    found: set[str] = set()
    for one in _functions(method):
        # A lambda in the middle of a line is no text of its own.
        with contextlib.suppress(OSError, SyntaxError):
            # Of this function, not of the one that it wraps.
            source = ast.parse(textwrap.dedent(inspect.getsource(
                one.__code__)))
            found.update(_set_on_self(source.body[0]))
    return found


def _set_on_self(node: ast.AST) -> Iterator[str]:
    """Yield the attributes of ``self`` that are set, in no other class."""
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
    """See that what this package's driver has made is still there.

    :param driver: after its base was initialized.
    :param mine: attribute -> value, as they were before.
    :raises UnfitError: the base has attributes of the same name.
    """
    now = vars(driver)
    if lost := sorted(name for name, value in mine.items()
                      if now.get(name) is not value):
        raise UnsupportedDriver(
            "It sets attributes that this package's driver has for something "
            f'else: rename {", ".join(lost)}.')


def _theirs(base) -> list[type]:
    """Return the classes before nova's, in the order of resolution."""
    order = base.__mro__
    return list(order[:order.index(names.IronicDriver)])


def _overrides(base, name) -> Iterator[tuple[type, typing.Any]]:
    """Return what overrides a method of nova's: (class, method)."""
    return ((owner, vars(owner)[name]) for owner in _theirs(base)
            if name in vars(owner))


def _functions(function) -> list[types.FunctionType]:
    """Return a function, and those that its decorators have wrapped."""
    found: list[types.FunctionType] = []
    ahead = [function]
    while ahead:
        one = ahead.pop()
        if not inspect.isfunction(one) or one in found:
            continue
        found.append(one)
        ahead.append(getattr(one, '__wrapped__', None))
        for cell in one.__closure__ or ():
            # It may be empty.
            with contextlib.suppress(ValueError):
                ahead.append(cell.cell_contents)
    return found


def _mentioned(code) -> set[str]:
    """Return the names in a function's code, and in that of those in it."""
    return set(code.co_names).union(*(
        _mentioned(one) for one in code.co_consts
        if isinstance(one, types.CodeType)))
