# SPDX-License-Identifier: Apache-2.0

"""What an audit asks of the world, and what it has it do: the ports.

nova, placement and Ironic in a nova-compute (:mod:`nova_ironic_multihost.
adapters`), a model of them in the simulation. Each method asks anew.
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
    """Where the facts come from. Nothing here changes anything."""

    def services(self) -> list[peers.ComputeService]:
        """Return the enabled services that have an Ironic compute node."""

    def new_services(self) -> list[peers.ComputeService]:
        """Return the enabled services that start for the first time.

        They are up and have never sent a heartbeat, whatever they manage.
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
        """Return {node: what :meth:`consumers` does} of each of the nodes."""

    def mapped(self, host: str) -> bool | None:
        """Whether the host is mapped to a cell, None if it is not known."""

    def aggregates(self) -> tuple[Aggregate, ...] | None:
        """Return nova's host aggregates, None if they are not known."""

    def generations(self) -> Mapping[str, int]:
        """Return {uuid: generation} of all resource providers."""


class ListingError(Exception):
    """Ironic does not say which nodes it has; the message says why."""


class MarkerNotFound(Exception):
    """Ironic has no such node, so it does not say what comes after it."""


class Pages(typing.Protocol):
    """Ironic's listings, a page at a time.

    Each method asks anew.

    :raises ListingError: by each method, when Ironic does not answer.
    """

    def page(self, partition: peers.Partition, after: str | None,
             limit: int, wanted: Callable[[str, str | None], bool] | None,
             unused: bool = False) -> ListingPage:
        """Return some nodes in the order in which they were created.

        Those of the partition, and no others.

        :param after: uuid of the node that the page before ended with, None
            for the first page.
        :param limit: the most nodes; Ironic may have a lower one.
        :param wanted: says of which nodes the body is wanted, by the uuids of
            the node and of its instance; None for none.
        :param unused: only those without an instance.
        :raises MarkError: there is no node ``after``.
        """

    def newest(
        self,
        partition: peers.Partition,
        after: str | None,
        limit: int,
        wanted: Callable[[str, str | None], bool],
    ) -> ListingPage:
        """Return some nodes, the one that was touched last first.

        Of whatever partition, as one that leaves is touched, too: a row says
        whether it is :attr:`.mirror.NodeRow.here`. Parameters as for
        :meth:`page`.
        """

    def node(self, node: str) -> NodeRow:
        """Return one node with its body, whatever its partition.

        :raises MarkError: there is no such node.
        """

    def touched(self, node: str) -> datetime.datetime | None:
        """Return when a node was touched last, None if it never was.

        :raises MarkError: there is no such node.
        """

    def total(self, partition: peers.Partition) -> int | None:
        """Return how many nodes there are in a partition, or in it and others.

        None if Ironic does not say: this process may not ask, or it is too
        old.
        """


#: Says of some hosts, as nova spells them, whose instances may be taken over
#: at this moment; more of them may be among them. Raises an Exception when
#: that is not known.
Eligible = Callable[[Set[str]], Set[HostKey]]


class Writes(typing.Protocol):
    """What an audit changes itself. All else is done by nova's tracker."""

    def take_over(self, instances: Mapping[str, InstanceState], host: str,
                  eligible: Eligible) -> Mapping[str, bool | Exception]:
        """Make instances this host's that are still as they were seen.

        :param instances: uuid -> as it was seen; few.
        :param host: this host.
        :param eligible: asked once more right before their host is written.
        :returns: uuid -> whether it is this host's now, or why that is not
            known.
        :raises Exception: that is known of none of them.
        """

    def remove_provider(self, node: str) -> bool:
        """Delete the resource provider of a node that is gone.

        With what deleted servers have left of it.

        :returns: whether it is deleted; False while a server has the node.
        :raises Exception: placement or nova does not answer.
        """


class Registration(typing.Protocol):
    """This compute service as nova has it.

    Each method reads and writes at once, returns whether it has written, and
    raises an Exception when that is not known.
    """

    def say(self, words: str) -> bool:
        """writes a stop marker; builds are still sent here.

        Not when an operator has disabled the service or forced it down.
        """

    def close(self, words: str) -> bool:
        """Let no more builds be sent here, if that is the stop marker."""

    def take_back(self) -> bool:
        """Take the stop marker back, and enable the service."""


class Instance(typing.Protocol):
    """An instance as nova works with it; more is nova's business."""

    uuid: str
    host: str | None
    node: str | None
    vm_state: str
    task_state: str | None


class Instances(typing.Protocol):
    """What nova does for the instances of this host.

    Each method asks or writes at once, and raises an Exception when it cannot
    be known whether it did.
    """

    def marked(self, host: HostKey) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of the instances that a host has marked.

        On whatever host they are; deleted ones are not among them.
        """

    def busy(self, host: str) -> Mapping[str, InstanceState]:
        """Return the same of those of a host that do something.

        They carry no mark, and this package knows how that ends.

        :param host: as nova spells it.
        """

    def of_host(self, host: str, after: str | None
                ) -> Mapping[str, InstanceState]:
        """Return {uuid: state} of some instances of a host, in their order.

        Not many at a time; none when there are no more.

        :param after: uuid of the last one that was returned, None to begin.
        """

    def spell_host(self, uuid: str) -> None:
        """Have an instance of this host say so as the host spells itself."""

    def read(self, uuid: str) -> Instance | None:
        """Return an instance, None if it is deleted."""

    def set_states(self, instance: Instance, vm_state: str,
                   task_state: str | None) -> bool:
        """Write both states, if the task state is what was read.

        :returns: whether it was; also False when it is deleted by now.
        """

    def init(self, instance: Instance) -> None:
        """Do what nova does for an instance at the start of a service."""

    def delete(self, instance: Instance) -> None:
        """Do what nova does when it is asked to delete an instance."""

    def restore(self, instance: Instance) -> None:
        """Do what nova does when it is asked to restore an instance."""

    def fail(self, instance: Instance, reason: str) -> None:
        """Set an instance to ERROR, with a fault that says why."""

    def deployed(self, instance: Instance) -> None:
        """Note that a build or a rebuild has come to its end."""

    def began(self, uuid: str, action: str) -> datetime.datetime | None:
        """Return when the last action of one kind on an instance began."""

    def asked_last(self, uuid: str) -> str | None:
        """Return what :func:`.rules.evacuation.asked_last` says of it."""

    def notify(self, event: str, payload: dict[str, object]) -> None:
        """Send a notification of this package."""


class Builds(typing.Protocol):
    """Builds of servers before they are on a host."""

    def unclaimed(self) -> Set[SentBuild]:
        """Return those that have a node and no host yet.

        Not those of which either is not known.
        """

    def receive(self) -> None:
        """Wait until all has come that waits in the queue of this host.

        :raises Exception: that is not known.
        """

    def give_up(self, build: SentBuild, reason: str,
                absent: Callable[[], bool]) -> bool:
        """Set a build to ERROR, with a fault that says why.

        :param absent: whether it still has not come, asked last.
        :returns: whether it was still on no host, and not begun.
        """


class Evacuations(typing.Protocol):
    """nova's evacuations, of which none comes to anything."""

    def found(self) -> Mapping[str, Evacuated]:
        """Return those that nobody has refused, or only just.

        :returns: {uuid of the instance: what is known of it}, of instances on
            nodes of Ironic only.
        """

    def refuse(self, uuid: str) -> bool:
        """Undo what nova has done for the evacuations of an instance.

        Whatever it does it may do again: placement may have been told to
        allocate another machine since.

        :returns: whether there was one that nobody had refused.
        :raises Exception: not all of it could be done; it is to be repeated.
        """


class Operations(typing.Protocol):
    """nova's operations on instances, as this process carries them out."""

    @property
    def at_work(self) -> Set[str]:
        """Uuids of the instances that operations are at, or wait for."""

    @property
    def unfinished(self) -> Set[str]:
        """Uuids of those whose last operation may have left a task state."""

    def repeating(self) -> contextlib.AbstractContextManager[None]:
        """Repeat in this thread what has failed before.

        It raises what :meth:`silent` is true of if a service does not answer.
        """

    def silent(self, exc: Exception) -> bool:
        """Whether something has failed as a service does not answer."""

    def forget(self, uuids: Set[str]) -> None:
        """Take instances out of :attr:`unfinished`."""


class Machines(typing.Protocol):
    """What Ironic makes of the machines of this host's instances."""

    def provision_state(self, instance: Instance) -> str | None:
        """Return that of an instance's node, None if the node is not its."""

    def deployed_since(self, instance: Instance,
                       moment: datetime.datetime | None) -> bool:
        """Whether Ironic has begun to deploy an instance since a moment."""


class Tracker(typing.Protocol):
    """nova's resource tracker, which audits one node at a time."""

    def has(self, node: str) -> bool:
        """Whether it has the record of a node at hand."""

    def drop(self, node: str) -> None:
        """Have it forget a node, so that it looks at its record."""

    def audit(self, node: str) -> None:
        """Have it take the record of a node and tell placement of it."""

    def move(self, nodes: Sequence[str],
             judge: Callable[[Sequence[str]], Sequence[Record]]) -> Set[str]:
        """Take nodes of dead hosts as they are, and have it know them.

        :param nodes: few.
        :param judge: returns the records of those that may be taken, right
            before they are.
        :returns: those that are this host's now. Of the others that is not
            known.
        """

    def pull(self, nodes: Sequence[str],
             judge: Callable[[list[str]], Iterable[Record]]) -> Set[str]:
        """Take idle nodes of live hosts as they are, and have it know them.

        :param nodes: few.
        :param judge: returns the records of those that may be taken, by the
            uuids of some of them.
        :returns: those that are this host's now. Of the others that is not
            known.
        """

    def unchanged(self, nodes: Sequence[str]) -> Set[str]:
        """Return the nodes of which nobody has told placement since it has.

        Those of which that is not known are not among them.
        """


class ProviderTraits(typing.Protocol):
    """The traits of a node in placement."""

    @property
    def generation(self) -> int:
        """Of its resource provider when they were read."""


class Traits(typing.Protocol):
    """The marks of nodes of disabled compute services, in placement.

    Each method raises an Exception when placement does not answer.
    """

    def disabled(self) -> Set[str]:
        """Return the uuids of all nodes that are marked."""

    def read(self, nodes: Sequence[str]) -> Mapping[str, ProviderTraits]:
        """Return {node: its traits}; no entry for one without a provider."""

    def write(self, found: Mapping[str, ProviderTraits], disabled: bool
              ) -> Mapping[str, int]:
        """Mark nodes, or take that from them.

        :param found: what :meth:`read` returned of each.
        :param disabled: whether they are to be marked.
        :returns: {node: the generation of its provider now}; no entry for one
            that placement does not take, as when it is another by now.
        """


class Queue(typing.Protocol):
    """What a dead compute service was asked for and has not read.

    What is taken is held until it is dropped or handed on, or the queue is
    closed: then it goes back, and whoever reads next finds it. Each method
    raises an Exception when nobody answers; the queue is then to be closed.
    """

    def consumers(self) -> int | None:
        """Return how many read it; None if there is no such queue.

        See :func:`.rules.forwarding.returned`.

        :raises PermissionError: this process may not ask.
        """

    def take(self) -> QueuedRequest | None:
        """Take the next message; None if there is none.

        :raises PermissionError: this process may not.
        """

    def beat(self) -> None:
        """Show the message bus that this process is there."""

    def attended(self) -> contextlib.AbstractContextManager[None]:
        """Show it that again and again while this thread does other things.

        It would give back what is held, and count that.
        """

    def create(self) -> None:
        """Have it on the message bus, if it is not there.

        :raises PermissionError: this process may not.
        """

    def hand_on(
        self, request: QueuedRequest, host: str, copy: bool = False
    ) -> bool:
        """Send a message to another host, and let go of it then.

        :param host: as nova spells it.
        :param copy: to where its copies are, not to its queue.
        :returns: whether that has it now.
        """

    def drop(self, request: QueuedRequest) -> None:
        """Let go of a message for good."""

    def close(self) -> None:
        """Give back what is held; raises nothing."""


class Queues(typing.Protocol):
    """The queues of the compute services."""

    @property
    def readable(self) -> bool:
        """Whether they can be read, with the message bus that there is."""

    def open(self, host: str) -> Queue:
        """Open the queue of a host, whether or not there is one.

        :param host: as nova spells it.
        :raises Exception: nobody answers.
        """

    def open_copies(self, host: str) -> Queue:
        """Open where the copies of a host's builds are, likewise."""


class Copier(typing.Protocol):
    """Sends copies of builds to where this host's are."""

    def seal(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return what is to be sent, whatever becomes of the build here.

        :param arguments: what the build was asked for with, by name.
        """

    def copy(self, arguments: Mapping[str, object]) -> None:
        """Send one.

        :param arguments: what :meth:`seal` returned.
        :raises Exception: it may not be there.
        """


class Attempts(typing.Protocol):
    """What compute services have begun for builds, and not ended."""

    def count(self, instance: str) -> int:
        """Return how often a build was begun and not ended.

        :param instance: its uuid.
        :raises Exception: nova does not say.
        """

    def undo(self, instance: Instance, copy: QueuedRequest) -> None:
        """Undo what was done for a build, so that it can be done anew.

        It may be done several times; when it is done the instance is on no
        host.

        :param instance: on this host.
        :param copy: of the build.
        :raises Exception: not all of it could be done; it is to be repeated.
        """

    def repeatable(self, instance: Instance) -> bool:
        """Whether all that was done for a build can be undone.

        :raises Exception: that is not known.
        """
