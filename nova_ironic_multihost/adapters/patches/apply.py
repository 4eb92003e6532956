# SPDX-License-Identifier: Apache-2.0

"""Replace in nova what :mod:`.table` lists.

It replaces methods of objects, not of classes (two exceptions: page "What is
replaced in nova"): oslo.messaging, nova's own calls and its periodic tasks
read a method from the object at each call.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import functools
import inspect
import types
import typing

from nova import safe_utils

if typing.TYPE_CHECKING:
    from nova_ironic_multihost.adapters.patches.table import Row


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of one of nova's methods.

    :ivar parameters: names of the method's parameters, without ``self``.
    """

    target: typing.Any
    name: str
    method: abc.Callable
    parameters: tuple[str, ...]
    args: tuple
    kwargs: abc.Mapping[str, typing.Any]

    def __call__(self) -> typing.Any:
        """Call the method."""
        return self.method(*self.args, **self.kwargs)

    def __getitem__(self, parameter: str) -> typing.Any:
        """Return an argument; None if the caller has left it out."""
        return self.arguments().get(parameter)

    def arguments(self) -> dict[str, typing.Any]:
        """Return the arguments by their names."""
        return {**dict(zip(self.parameters, self.args, strict=False)),
                **self.kwargs}

    def changed(self, **arguments: object) -> typing.Any:
        """Call the method with other arguments."""
        return self.method(**{**self.arguments(), **arguments})


def signature(function: abc.Callable) -> abc.Mapping[str, inspect.Parameter]:
    """Return the parameters of nova's function, also below decorators."""
    found = inspect.signature(function).parameters
    if 'instance' not in found and takes_anything(function):
        hidden = safe_utils.get_wrapped_function(inspect.unwrap(function))
        if inspect.isfunction(hidden):
            found = inspect.signature(hidden).parameters
    return found


def parameters(function: abc.Callable) -> tuple[str, ...]:
    """Return the names of the parameters of nova's function."""
    return tuple(signature(function))


def takes_anything(function: abc.Callable) -> bool:
    """Whether a function takes any number of arguments by position."""
    return any(one.kind is one.VAR_POSITIONAL for one
               in inspect.signature(function).parameters.values())


def apply(rows: abc.Iterable[Row], targets: abc.Mapping[str, typing.Any],
          parts: typing.Any) -> None:
    """Replace what rows list, all of which nova fits.

    :param targets: target of a row -> object; rows of other targets (of a
        transport that is not RabbitMQ, say) are left out.
    :param parts: the :class:`.service.DriverService`.
    """
    made = [(target, name, _layered(row, target, name, parts))
            for row in rows if row.layer and row.target in targets
            for target in [targets[row.target]]
            for name in row.names(type(target))]
    for target, name, method in made:
        setattr(target, name, method)


def novas(target: object, name: str) -> typing.Any:
    """Return nova's method, without the layer."""
    method = getattr(target, name)
    return getattr(method, '__dict__', {}).get('nova', method)


def _layered(row, target, name, parts):
    """Return a method with the layer of a row around it."""
    function = getattr(row.owner, name, None) or getattr(type(target), name)
    names = parameters(function)[1:]
    method = getattr(target, name)

    # nova tracks bound methods alone (service._TrackingEndpointWrapper).
    @functools.wraps(getattr(method, '__func__', function))
    def call(self, *args, **kwargs):
        return row.layer(parts, Call(
            self, name, method, names, args, kwargs))

    call.nova = novas(target, name)
    return types.MethodType(call, target)
