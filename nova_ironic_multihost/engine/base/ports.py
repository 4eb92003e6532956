# SPDX-License-Identifier: Apache-2.0

"""The ports: what the engine reads, and what it changes.

:mod:`nova_ironic_multihost.adapters` implements them with nova, placement,
Ironic and RabbitMQ, the simulation with a model of these. No method caches.
Each raises an Exception when its answer, or the result of its write, is
unknown. A host is a ``str`` as nova spells it, or a :class:`.peers.HostKey`.
"""

from collections import abc
import contextlib
import datetime
import typing

from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules.evacuation import Evacuated
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import Aggregate
from nova_ironic_multihost.rules.peers import HostKey


#: Return the dead hosts, possibly more than were given, from which instances
#: may be taken over now. Raises an Exception when that is unknown.
Eligible = abc.Callable[[abc.Set[str]], abc.Set[HostKey]]


class Cloud(typing.Protocol):
    """nova and placement, as audits read and change them."""

    def services(self) -> list[peers.ComputeService]:
        """Return the enabled services that have an Ironic compute node."""

    def service(self, host: str) -> peers.ComputeService | None:
        """Return any compute service, None if nova has none of that name."""

    def instances(self, hosts: abc.Iterable[str]) -> abc.Set[str]:
        """Return the uuids of the instances on these hosts."""

    def instance_states(self, instances: abc.Sequence[str]
                        ) -> abc.Mapping[str, InstanceState]:
        """Return {uuid: state}; an instance unknown to nova has no entry."""

    def records_of(self, hosts: abc.Iterable[str]) -> list[Record]:
        """Return the records of these hosts."""

    def records(self, nodes: abc.Sequence[str]) -> list[Record]:
        """Return the records of these nodes."""

    def consumers(self, node: str) -> abc.Set[str] | None:
        """Return the consumers of a node, None if placement did not say."""

    def consumers_of(self, nodes: abc.Sequence[str]
                     ) -> abc.Mapping[str, abc.Set[str] | None]:
        """Return {node: :meth:`consumers`} for each of the nodes."""

    def mapped(self, host: str) -> bool | None:
        """Whether the host is mapped to a cell, None if unknown."""

    def aggregates(self) -> tuple[Aggregate, ...] | None:
        """Return nova's host aggregates, None if they cannot be read."""

    def generations(self) -> abc.Mapping[str, int]:
        """Return {uuid: generation} of all resource providers."""

    def take_over(self, instances: abc.Mapping[str, InstanceState], host: str,
                  eligible: Eligible) -> abc.Mapping[str, bool | Exception]:
        """Move instances to this host, if they are still as they were read.

        :param instances: a few, {uuid: state when it was read}.
        :param eligible: called again right before each write.
        :returns: {uuid: whether it is here now, an Exception if unknown}.
        """

    def remove_provider(self, node: str) -> bool:
        """Delete the provider of a gone node; False if a server uses it.

        Allocations of deleted servers are deleted too.
        """


class ListingError(Exception):
    """Ironic did not list its nodes; the message says why."""


class MarkerNotFound(Exception):
    """Ironic has no such node, so no page can start after it."""


class Pages(typing.Protocol):
    """Ironic's listings; without an answer they raise ListingError."""

    def page(self, partition: peers.Partition, after: str | None,
             limit: int, wanted: abc.Callable[[str], bool] | None
             ) -> ListingPage:
        """Return nodes of the partition in the order of their creation.

        :param after: last node of the page before, None for the first page.
        :param limit: the most nodes; Ironic may return fewer.
        :param wanted: a :data:`.lister.Wanted`; None for no bodies.
        :raises MarkerNotFound: there is no node ``after``.
        """

    def newest(self, partition: peers.Partition, after: str | None, limit: int,
               wanted: abc.Callable[[str], bool] | None) -> ListingPage:
        """Return nodes of all partitions, the last updated one first.

        A node that leaves the partition is updated too, see
        :attr:`.mirror.NodeRow.here`. Parameters are those of :meth:`page`.
        """

    def node(self, node: str) -> NodeRow:
        """Return a node of any partition with its body, or MarkerNotFound."""

    def touched(self, node: str) -> datetime.datetime | None:
        """Return when a node was updated, None if never; or MarkerNotFound."""

    def total(self, partition: peers.Partition) -> int | None:
        """Return how many nodes Ironic has (here or all), None if unknown."""


class Registration(typing.Protocol):
    """This service in nova's services table; methods return if they wrote."""

    def say(self, words: str) -> bool:
        """Write a stop marker; the scheduler still sends builds here.

        Not when an operator has disabled the service or forced it down.
        """

    def close(self, words: str) -> bool:
        """Disable the service if it has this stop marker: no more builds."""

    def take_back(self) -> bool:
        """Remove any stop marker and enable the service."""


class Instance(typing.Protocol):
    """The part of nova's instance that the engine reads."""

    uuid: str
    host: str | None
    node: str | None
    vm_state: str
    task_state: str | None


class Instances(typing.Protocol):
    """What nova does for the instances of this host."""

    def busy(self, host: str) -> abc.Mapping[str, InstanceState]:
        """Return the instances of this host with an operation to finish.

        Those with its mark, or in an operation that may be interrupted.
        """

    def of_host(self, host: str, after: str | None
                ) -> abc.Mapping[str, InstanceState]:
        """Return a few instances of a host after a uuid; none at the end."""

    def spell_host(self, uuid: str) -> None:
        """Write the host of an instance as this host spells it."""

    def read(self, uuid: str) -> Instance | None:
        """Return an instance, None if it is deleted."""

    def set_states(self, instance: Instance, vm_state: str,
                   task_state: str | None) -> bool:
        """Write both; False if deleted or if the task state has changed."""

    def init(self, instance: Instance) -> None:
        """Do what nova does for an instance when its service starts."""

    def delete(self, instance: Instance) -> None:
        """Do what nova does when a user deletes an instance."""

    def restore(self, instance: Instance) -> None:
        """Do what nova does when a user restores an instance."""

    def fail(self, instance: Instance, reason: str) -> None:
        """Set an instance to ERROR, with a fault that gives the reason."""

    def deployed(self, instance: Instance) -> None:
        """Note that a build or a rebuild has ended."""

    def began(self, uuid: str, action: str) -> datetime.datetime | None:
        """Return when the last action of this name began on an instance."""

    def asked_last(self, uuid: str) -> str | None:
        """Return :func:`.rules.evacuation.asked_last` of an instance."""

    def notify(self, event: str, payload: dict[str, object]) -> None:
        """Send a notification of this package."""


class Builds(typing.Protocol):
    """Builds of servers that no host has claimed yet."""

    def unclaimed(self) -> abc.Set[SentBuild]:
        """Return the builds that are known to have a node and no host."""

    def receive(self) -> None:
        """Wait until all requests in the queue of this host have arrived."""

    def give_up(self, build: SentBuild, reason: str,
                absent: abc.Callable[[], bool]) -> bool:
        """Set a build to ERROR with a reason; False if it has begun or moved.

        :param absent: called last; True if the build still has not arrived.
        """


class Evacuations(typing.Protocol):
    """nova's evacuations, which this driver refuses."""

    def found(self) -> abc.Mapping[str, Evacuated]:
        """Return {instance: evacuation} on Ironic nodes, not long refused."""

    def refuse(self, uuid: str) -> bool:
        """Undo what nova has done to evacuate an instance.

        Repeat it after an Exception. Returns False if all were refused before.
        """


class Operations(typing.Protocol):
    """nova's operations on instances in this process."""

    #: Another object after each :meth:`note_unfinished`.
    last_note: object

    @property
    def at_work(self) -> abc.Set[str]:
        """Uuids of instances with an operation that runs or waits."""

    @property
    def unfinished(self) -> abc.Set[str]:
        """Uuids of those that an operation may have left a task state."""

    def repeating(self) -> contextlib.AbstractContextManager[None]:
        """Repeat failed operations here; may raise a :meth:`silent` error."""

    def silent(self, exc: Exception) -> bool:
        """Whether the error means that a service did not answer."""

    def note_unfinished(self, uuid: str) -> None:
        """Add an instance to :attr:`unfinished`."""

    def forget(self, uuids: abc.Set[str]) -> None:
        """Remove instances from :attr:`unfinished`."""


class Machines(typing.Protocol):
    """Ironic's nodes of the instances of this host."""

    def provision_state(self, instance: Instance) -> str | None:
        """Return the state of its node, None if the node is not its own."""

    def deployed_since(self, instance: Instance,
                       moment: datetime.datetime | None) -> bool:
        """Whether Ironic has begun to deploy an instance since then."""


class Tracker(typing.Protocol):
    """nova's resource tracker, which audits one node at a time."""

    def has(self, node: str) -> bool:
        """Whether the tracker holds the record of a node."""

    def drop(self, node: str) -> None:
        """Forget a node, so that its next audit reads the record."""

    def audit(self, node: str) -> None:
        """Audit a node: take its record and update placement."""

    def move(self, nodes: abc.Sequence[str],
             judge: abc.Callable[[abc.Sequence[str]], abc.Sequence[Record]]
            ) -> abc.Set[str]:
        """Take the records of nodes of dead hosts, without an audit.

        :param judge: called right before the write with a few uuids; returns
            the records that may be taken.
        :returns: nodes that this host owns now; of the others that is unknown.
        """

    def pull(self, nodes: abc.Sequence[str],
             judge: abc.Callable[[list[str]], abc.Iterable[Record]]
            ) -> abc.Set[str]:
        """Like :meth:`move`, for idle nodes of live hosts."""

    def unchanged(self, nodes: abc.Sequence[str]) -> abc.Set[str]:
        """Return nodes with a provider that only this host has changed."""


class Queue(typing.Protocol):
    """The RPC queue of a dead compute service, with requests it never read.

    A request is held until it is dropped or handed on. Closing the queue
    returns it to the next reader; close the queue after any Exception.
    PermissionError means that this process may not use the queue.
    """

    def consumers(self) -> int | None:
        """Return the number of consumers, None if there is no queue."""

    def take(self) -> QueuedRequest | None:
        """Take the next request; None if there is none."""

    def beat(self) -> None:
        """Send a heartbeat to the message bus."""

    def attended(self) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats meanwhile, or RabbitMQ redelivers held ones."""

    def create(self) -> None:
        """Create the queue, if it does not exist."""

    def hand_on(self, request: QueuedRequest, host: str, copy: bool = False
               ) -> bool:
        """Send a request to another host and drop it; False if still held.

        :param copy: to the queue of build backups of that host.
        """

    def drop(self, request: QueuedRequest) -> None:
        """Acknowledge a request, so that nobody receives it again."""

    def close(self) -> None:
        """Return the held requests; raises nothing."""


class Queues(typing.Protocol):
    """The RPC queues of the compute services."""

    @property
    def readable(self) -> bool:
        """Whether this message bus lets another host read them."""

    def open(self, host: str) -> Queue:
        """Open the queue of a host, which need not exist."""

    def open_copies(self, host: str) -> Queue:
        """Open the queue of build backups of a host, like :meth:`open`."""


class Copier(typing.Protocol):
    """Sends backups of builds to this host's queue of build backups."""

    def copy(self, arguments: abc.Mapping[str, object]) -> None:
        """Send the backup of a build with these arguments."""


class Attempts(typing.Protocol):
    """Attempts of compute services at builds that have not ended."""

    def count(self, instance: str) -> int:
        """Return how often a build has begun without ending."""

    def undo(self, instance: Instance, copy: QueuedRequest) -> None:
        """Take a build off its host by the backup; repeat after an error."""

    def repeatable(self, instance: Instance) -> bool:
        """Whether all that was done for a build can be undone."""
