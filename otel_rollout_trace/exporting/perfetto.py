"""Perfetto's own format: protobuf packets, for https://ui.perfetto.dev and its SQL.

Packets are written as they come; Perfetto sorts them by time and keeps the order of
the file for equal times. What begins at once with the end of another thing on its
track is therefore written after it, and is not nested in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import IO, Any, Final

from ..spans.fields import AttributeValue
from .exports import MissingExtraError, missing, well_formed
from .timeline import Details, Slice

__all__ = ["PerfettoCanvas"]

# Everything is from one writer.
_SEQUENCE: Final = 1

# The clock that Perfetto takes times of packets to be of, and that of the calendar.
_BOOTTIME: Final = 6
_REALTIME: Final = 1

# Of a sequence, such as the groups of a step, so many are shown.
_MOST_ITEMS: Final = 1_000


class PerfettoCanvas:
    """Writes a timeline as a Perfetto trace.

    Args:
        file: takes the bytes.

    Attributes:
        written: how many of what were written.

    Raises:
        MissingExtraError: where the ``perfetto`` package is not installed.
    """

    def __init__(self, file: IO[bytes]) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
            from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
        except ModuleNotFoundError:
            raise missing("perfetto", "perfetto") from None
        except Exception as error:  # it asks protobuf for its version when it is imported
            raise MissingExtraError(f"the 'perfetto' package cannot be used: {error}") from None
        self.written: Counter[str] = Counter()
        self._builder: Any = StreamingTraceProtoBuilder(file)
        event = protos.TrackEvent
        self._begin, self._end = event.TYPE_SLICE_BEGIN, event.TYPE_SLICE_END
        self._instant, self._counter = event.TYPE_INSTANT, event.TYPE_COUNTER
        self._by_rank = protos.TrackDescriptor.EXPLICIT
        self._first = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self._tracks = 0
        self._timed = False

    def run(self, name: str) -> int:
        """See `Canvas`."""
        return self._describe(name, None, self._tracks)

    def track(self, parent: int, name: str, rank: int) -> int:
        """See `Canvas`."""
        return self._describe(name, parent, rank)

    def counter(self, parent: int, name: str, unit: str, rank: int) -> int:
        """See `Canvas`."""
        return self._describe(name, parent, rank, unit=unit)

    def slice(self, track: int, drawn: Slice) -> None:
        """See `Canvas`."""
        packet, event = self._event(track, drawn.started, self._begin)
        event.name = well_formed(drawn.name)
        event.categories.extend(drawn.category.split(","))
        if drawn.flow_out is not None:
            event.flow_ids.append(drawn.flow_out)
        event.terminating_flow_ids.extend(drawn.flows_in)
        _annotate(event, drawn.details)
        self._builder.write_packet(packet)
        for time, name, details in drawn.moments:
            self.instant(track, time, name, details)
        packet, _ = self._event(track, drawn.ended, self._end)
        self._builder.write_packet(packet)

    def instant(self, track: int, time: int, name: str, details: Details) -> None:
        """See `Canvas`."""
        packet, event = self._event(track, time, self._instant)
        event.name = well_formed(name)
        _annotate(event, details)
        self._builder.write_packet(packet)
        self.written["instants"] += 1

    def value(self, counter: int, time: int, value: float) -> None:
        """See `Canvas`."""
        packet, event = self._event(counter, time, self._counter)
        if type(value) is int:
            event.counter_value = value
        else:
            event.double_counter_value = value
        self._builder.write_packet(packet)

    def close(self) -> None:
        """See `Canvas`."""

    def _describe(self, name: str, parent: int | None, rank: int, unit: str | None = None) -> int:
        packet = self._packet()
        descriptor = packet.track_descriptor
        self._tracks += 1
        descriptor.uuid = self._tracks
        descriptor.name = well_formed(name)
        descriptor.child_ordering = self._by_rank
        descriptor.sibling_order_rank = rank
        if parent is not None:
            descriptor.parent_uuid = parent
        if unit is not None:
            descriptor.counter.unit_name = unit
        self._builder.write_packet(packet)
        self.written["tracks"] += 1
        return self._tracks

    def _event(self, track: int, time: int, kind: int) -> tuple[Any, Any]:
        if not self._timed:
            self._timed = True
            self._tell_the_time(time)
        packet = self._packet()
        packet.timestamp = time * 1000
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        return packet, event

    def _tell_the_time(self, time: int) -> None:
        # Else Perfetto takes times for those since a machine was started, and shows no date.
        packet = self._packet()
        for clock_id in (_BOOTTIME, _REALTIME):
            clock = packet.clock_snapshot.clocks.add()
            clock.clock_id = clock_id
            clock.timestamp = time * 1000
        self._builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if not self._tracks:
            packet.sequence_flags = self._first
        return packet


def _annotate(event: Any, details: Details) -> None:
    for name, value in details.items():
        annotation = event.debug_annotations.add()
        annotation.name = well_formed(name)
        _put(annotation, value)


def _put(annotation: Any, value: AttributeValue) -> None:
    kind = type(value)
    if kind is str:
        annotation.string_value = well_formed(str(value))
    elif kind is bool:
        annotation.bool_value = value
    elif kind is int:
        annotation.int_value = value
    elif kind is float:
        annotation.double_value = value
    elif isinstance(value, Sequence):
        for item in value[:_MOST_ITEMS]:
            _put(annotation.array_values.add(), item)
