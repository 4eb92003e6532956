# SPDX-License-Identifier: Apache-2.0

"""The ports: what the engine asks of the world, and what it changes.

In a nova-compute :mod:`nova_ironic_multihost.adapters` implements them with
nova, placement and Ironic; in the simulation a model does. Each method asks
anew.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import contextlib
import datetime
import typing

from nova_ironic_multihost.rules.aggregates import Aggregate
from nova_ironic_multihost.rules.evacuation import Evacuated
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.lost_builds import SentBuild
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey


class Sources(typing.Protocol):
    """Reads facts; changes nothing."""

    def services(self) -> list[peers.ComputeService]:
        """Return the enabled services that have an Ironic compute node."""

    def new_services(self) -> list[peers.ComputeService]:
        """Return the enabled services that start for the first time.

        They are up and have not sent a heartbeat yet.
        """

    def service(self, host: str) -> peers.ComputeService | None:
        """Return any compute service, None if nova does not have it."""

    def instances(self, hosts: Iterable[str]) -> Set[str]:
        """Return the uuids of the instances on these hosts."""

    def instance_states(self, instances: Sequence[str]
                        ) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of instances; no entry for an unknown one."""

    def records_of(self, hosts: Iterable[str]) -> list[Record]:
        """Return the records of these hosts."""

    def records(self, nodes: Sequence[str]) -> list[Record]:
        """Return the records of these nodes."""

    def consumers(self, node: str) -> Set[str] | None:
        """Return the consumers of a node, None if they are not known."""

    def consumers_of(self, nodes: Sequence[str]
                     ) -> Mapping[str, Set[str] | None]:
        """Return {node: result of :meth:`consumers`}."""

    def mapped(self, host: str) -> bool | None:
        """Whether the host is mapped to a cell, None if it is not known."""

    def aggregates(self) -> tuple[Aggregate, ...] | None:
        """Return nova's host aggregates, None if they are not known."""

    def generations(self) -> Mapping[str, int]:
        """Return {uuid: generation} of all resource providers."""


class ListingError(Exception):
    """Ironic does not list its nodes; the message says why."""


class MarkerNotFound(Exception):
    """Ironic has no such node, so it does not say which nodes follow it."""


class Pages(typing.Protocol):
    """Ironic's listings, a page at a time.

    :raises ListingError: by each method, when Ironic does not answer.
    """

    def page(self, partition: peers.Partition, after: str | None,
             limit: int, wanted: Callable[[str, str | None], bool] | None,
             unused: bool = False) -> ListingPage:
        """Return some nodes of a partition in the order of their creation.

        :param after: last node of the page before, None for the first page.
        :param limit: the most nodes; Ironic may have a lower limit.
        :param wanted: returns whether the body is wanted, by the uuids of the
            node and of its instance; None for no bodies.
        :param unused: only nodes without an instance.
        :raises MarkerNotFound: there is no node ``after``.
        """

    def newest(
        self,
        partition: peers.Partition,
        after: str | None,
        limit: int,
        wanted: Callable[[str, str | None], bool],
    ) -> ListingPage:
        """Return some nodes, the one that was touched last first.

        Of all partitions, as a node that leaves one is touched, too: a row
        says whether it is :attr:`.mirror.NodeRow.here`. Parameters as for
        :meth:`page`.
        """

    def node(self, node: str) -> NodeRow:
        """Return one node with its body, whatever its partition.

        :raises MarkerNotFound: there is no such node.
        """

    def touched(self, node: str) -> datetime.datetime | None:
        """Return when a node was touched last, None if it never was.

        :raises MarkerNotFound: there is no such node.
        """

    def total(self, partition: peers.Partition) -> int | None:
        """Return the number of nodes in a partition, or in it and others.

        None if Ironic does not say: nova's account may not ask, or Ironic is
        too old.
        """


#: Says of some hosts, as nova spells them, whose instances may be taken over
#: at this moment; more of them may be among them. Raises an Exception when
#: that is not known.
Eligible = Callable[[Set[str]], Set[HostKey]]


class Writes(typing.Protocol):
    """Changes that an audit makes itself; nova's tracker makes all others."""

    def take_over(self, instances: Mapping[str, InstanceState], host: str,
                  eligible: Eligible) -> Mapping[str, bool | Exception]:
        """Make instances this host's that are still as they were seen.

        :param instances: uuid -> state as it was seen; few.
        :param host: this host.
        :param eligible: called once more right before the host is written.
        :returns: uuid -> whether it is this host's now, or the error because
            of which that is not known.
        :raises Exception: it is known of none of them.
        """

    def remove_provider(self, node: str) -> bool:
        """Delete the resource provider of a node that is gone.

        Allocations of deleted servers go with it.

        :returns: whether it is deleted; False while a server has the node.
        :raises Exception: placement or nova does not answer.
        """


class Registration(typing.Protocol):
    """This compute service in nova's services table.

    Each method reads and writes at once and returns whether it has written.

    :raises Exception: by each method, when that is not known.
    """

    def say(self, words: str) -> bool:
        """Write the stop marker; builds are still sent here.

        Not when an operator has disabled the service or forced it down.
        """

    def close(self, words: str) -> bool:
        """Have no more builds sent here, if the stop marker is there."""

    def take_back(self) -> bool:
        """Remove the stop marker, and enable the service."""


class Instance(typing.Protocol):
    """An instance as nova has it; only nova knows more of it."""

    uuid: str
    host: str | None
    node: str | None
    vm_state: str
    task_state: str | None


class Instances(typing.Protocol):
    """nova's operations on the instances of this host.

    :raises Exception: by each method, when it is not known whether it did its
        work.
    """

    def marked(self, host: HostKey) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of the instances with marks of a host.

        On all hosts, without deleted ones.
        """

    def busy(self, host: str) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of a host's instances that do something.

        Only of operations that this package can finish, and without marks.
        """

    def of_host(self, host: str, after: str | None
                ) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of some instances of a host, in their order.

        :param after: uuid of the last one that was returned, None to begin.
        :returns: a few at a time; empty at the end.
        """

    def spell_host(self, uuid: str) -> None:
        """Write the host of an instance as the host spells itself."""

    def read(self, uuid: str) -> Instance | None:
        """Return an instance, None if it is deleted."""

    def set_states(self, instance: Instance, vm_state: str,
                   task_state: str | None) -> bool:
        """Write both states, if the task state is still the one that was read.

        :returns: whether it was written; False also when it is deleted by now.
        """

    def init(self, instance: Instance) -> None:
        """Do what nova does for an instance at the start of a service."""

    def delete(self, instance: Instance) -> None:
        """Delete an instance as nova does."""

    def restore(self, instance: Instance) -> None:
        """Restore an instance as nova does."""

    def fail(self, instance: Instance, reason: str) -> None:
        """Set an instance to ERROR, with a fault that says why."""

    def deployed(self, instance: Instance) -> None:
        """Note the end of a build or a rebuild."""

    def began(self, uuid: str, action: str) -> datetime.datetime | None:
        """Return when the last action of one kind on an instance began."""

    def asked_last(self, uuid: str) -> str | None:
        """Return the result of :func:`.rules.evacuation.asked_last`."""

    def notify(self, event: str, payload: dict[str, object]) -> None:
        """Send a notification of this package."""


class Builds(typing.Protocol):
    """Builds of servers that have no host yet."""

    def unclaimed(self) -> Set[SentBuild]:
        """Return the builds that have a node and no host yet.

        Without those of which either is not known.
        """

    def receive(self) -> None:
        """Wait until all requests in the queue of this host have arrived.

        :raises Exception: that is not known.
        """

    def give_up(self, build: SentBuild, reason: str,
                absent: Callable[[], bool]) -> bool:
        """Set a build to ERROR, with a fault that says why.

        :param absent: called last: whether it still has not arrived.
        :returns: whether it was still without a host, and not begun.
        """


class Evacuations(typing.Protocol):
    """nova's evacuations, none of which succeeds."""

    def found(self) -> Mapping[str, Evacuated]:
        """Return {uuid of the instance: :class:`.evacuation.Evacuated`}.

        Of evacuations that were not refused yet, or just now, on nodes of
        Ironic.
        """

    def refuse(self, uuid: str) -> bool:
        """Undo what nova has done for the evacuations of an instance.

        Each call repeats that: nova may have told placement to allocate
        another machine since.

        :returns: whether there was one that was not refused.
        :raises Exception: not all could be undone; call it again.
        """


class Operations(typing.Protocol):
    """nova's operations on instances that this process carries out."""

    @property
    def at_work(self) -> Set[str]:
        """Uuids of the instances with an operation in progress or waiting."""

    @property
    def unfinished(self) -> Set[str]:
        """Uuids of instances that an operation may have left unfinished."""

    def repeating(self) -> contextlib.AbstractContextManager[None]:
        """Mark this thread as one that repeats a failed operation.

        It raises an error for which :meth:`silent` is true if a service does
        not answer.
        """

    def silent(self, exc: Exception) -> bool:
        """Whether an error means that a service does not answer."""

    def forget(self, uuids: Set[str]) -> None:
        """Remove instances from :attr:`unfinished`."""


class Machines(typing.Protocol):
    """Ironic's nodes of this host's instances."""

    def provision_state(self, instance: Instance) -> str | None:
        """Return the state of an instance's node, None if it has none."""

    def deployed_since(self, instance: Instance,
                       moment: datetime.datetime | None) -> bool:
        """Whether Ironic has begun to deploy an instance since a moment."""


class Tracker(typing.Protocol):
    """nova's resource tracker, which audits one node at a time."""

    def has(self, node: str) -> bool:
        """Whether it holds the record of a node."""

    def drop(self, node: str) -> None:
        """Have it forget a node, so that it reads the record again."""

    def audit(self, node: str) -> None:
        """Have it take the record of a node and report it to placement."""

    def move(self, nodes: Sequence[str],
             judge: Callable[[Sequence[str]], Sequence[Record]]) -> Set[str]:
        """Take nodes of dead hosts as they are, and hold them.

        :param nodes: few.
        :param judge: returns the records that may be taken, right before that.
        :returns: the nodes that are this host's now; of the others it is not
            known.
        """

    def pull(self, nodes: Sequence[str],
             judge: Callable[[list[str]], Iterable[Record]]) -> Set[str]:
        """Take idle nodes of live hosts as they are, and hold them.

        :param nodes: few.
        :param judge: returns the records that may be taken, of some nodes.
        :returns: the nodes that are this host's now; of the others it is not
            known.
        """

    def unchanged(self, nodes: Sequence[str]) -> Set[str]:
        """Return the nodes that placement has as the tracker reported them.

        Nodes of which that is not known are left out.
        """


class ProviderTraits(typing.Protocol):
    """The traits of a node in placement."""

    @property
    def generation(self) -> int:
        """Generation of the resource provider when they were read."""


class Traits(typing.Protocol):
    """The trait of nodes of disabled compute services, in placement.

    :raises Exception: by each method, when placement does not answer.
    """

    def disabled(self) -> Set[str]:
        """Return the uuids of all nodes with the trait."""

    def read(self, nodes: Sequence[str]) -> Mapping[str, ProviderTraits]:
        """Return {node: its traits}; no entry without a provider."""

    def write(self, found: Mapping[str, ProviderTraits], disabled: bool
              ) -> Mapping[str, int]:
        """Set or remove the trait of nodes.

        :param found: results of :meth:`read`.
        :param disabled: whether they are to have it.
        :returns: {node: new generation of its provider}; no entry for a node
            that placement refuses, as for a changed provider.
        """


class Queue(typing.Protocol):
    """The RPC queue of a dead compute service.

    A request that is taken is held until it is dropped or handed on, or the
    queue is closed; then it goes back for the next reader.

    :raises Exception: by each method, when RabbitMQ does not answer; close the
        queue then.
    """

    def consumers(self) -> int | None:
        """Return the number of its readers; None if there is no such queue.

        See :func:`.rules.forwarding.returned`.

        :raises PermissionError: this process may not ask.
        """

    def take(self) -> QueuedRequest | None:
        """Take the next request; None if there is none.

        :raises PermissionError: this process may not.
        """

    def beat(self) -> None:
        """Send a heartbeat to RabbitMQ."""

    def attended(self) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats while this thread does other work.

        Without them RabbitMQ gives back what is held, and counts that.
        """

    def create(self) -> None:
        """Create the queue, if it is not there.

        :raises PermissionError: this process may not.
        """

    def hand_on(
        self, request: QueuedRequest, host: str, copy: bool = False
    ) -> bool:
        """Send a request to another host, then acknowledge it.

        :param host: as nova spells it.
        :param copy: to the queue of its copies.
        :returns: whether that host has it now.
        """

    def drop(self, request: QueuedRequest) -> None:
        """Acknowledge a request."""

    def close(self) -> None:
        """Give back all that is held; raises nothing."""


class Queues(typing.Protocol):
    """The RPC queues of the compute services."""

    @property
    def readable(self) -> bool:
        """Whether they can be read over this message bus."""

    def open(self, host: str) -> Queue:
        """Open the queue of a host, whether or not it exists.

        :param host: as nova spells it.
        :raises Exception: RabbitMQ does not answer.
        """

    def open_copies(self, host: str) -> Queue:
        """Open the queue with the copies of a host's builds."""


class Copier(typing.Protocol):
    """Sends copies of builds to the queue of this host's copies."""

    def seal(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return the message for a build's arguments, as they are now."""

    def copy(self, arguments: Mapping[str, object]) -> None:
        """Send a copy.

        :param arguments: result of :meth:`seal`.
        :raises Exception: it may not be there.
        """


class Attempts(typing.Protocol):
    """Builds that compute services have begun and not ended."""

    def count(self, instance: str) -> int:
        """Return how often a build was begun and not ended.

        :param instance: its uuid.
        :raises Exception: nova does not say.
        """

    def undo(self, instance: Instance, copy: QueuedRequest) -> None:
        """Undo what was done for a build, so that it can begin again.

        It may be repeated; at its end the instance has no host.

        :param instance: on this host.
        :param copy: of the build.
        :raises Exception: not all could be undone; call it again.
        """

    def repeatable(self, instance: Instance) -> bool:
        """Whether all that was done for a build can be undone.

        :raises Exception: that is not known.
        """
