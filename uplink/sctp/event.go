package sctp

import (
	"fmt"
	"net/netip"
)

// EventKind says what a notification of the kernel is about, RFC 6458 section 6.1.
type EventKind uint8

const (
	// PathUp is sent when a path answers again, or for the first time.
	PathUp EventKind = iota + 1
	// PathFailing is sent when a path's first answer is overdue: traffic leaves it.
	PathFailing
	// PathDown is sent when so many answers are overdue that it counts as gone.
	PathDown
	// PathAdded is sent when the peer announced a new address.
	PathAdded
	// PathRemoved is sent when the peer gave an address up.
	PathRemoved
	// PathPrimary is sent when a path became the primary one.
	PathPrimary
	// PathConfirmed is sent when a new path was proved to lead to the peer.
	PathConfirmed
	// AssociationUp is sent when the association is established.
	AssociationUp
	// AssociationLost is sent when the peer aborted it or answers on no path.
	AssociationLost
	// AssociationRestarted is sent when the peer began anew under the same
	// address: what it knew of the byte stream is gone, and so the carrier ends.
	AssociationRestarted
	// AssociationEnded is sent when it was shut down in an orderly way.
	AssociationEnded
)

func (k EventKind) String() string {
	names := [...]string{
		PathUp: "path up", PathFailing: "path failing", PathDown: "path down", PathAdded: "path added",
		PathRemoved: "path removed", PathPrimary: "path primary", PathConfirmed: "path confirmed",
		AssociationUp: "association up", AssociationLost: "association lost",
		AssociationRestarted: "association restarted", AssociationEnded: "association ended",
	}
	if k == 0 || int(k) >= len(names) {
		return fmt.Sprintf("event %d", uint8(k))
	}
	return names[k]
}

// Event is one notification of the kernel.
type Event struct {
	Kind EventKind
	Path netip.Addr // the peer's address, of events about a path
}

func (e Event) String() string {
	if e.Path.IsValid() {
		return e.Kind.String() + " " + e.Path.String()
	}
	return e.Kind.String()
}

// The notifications' types and sizes.
const (
	typeAssocChange = 0x8001
	typePaddrChange = 0x8002
	notificationMin = 8 // type, flags, length
	assocChangeSize = 20
	paddrChangeSize = 148
)

// parseEvent reads a notification; ok is false for one that nobody asked for.
func parseEvent(b []byte) (e Event, ok bool, err error) {
	if len(b) < notificationMin {
		return e, false, fmt.Errorf("notification: %d bytes, want %d or more", len(b), notificationMin)
	}
	switch native.Uint16(b) {
	case typeAssocChange:
		if len(b) < assocChangeSize {
			return e, false, fmt.Errorf("notification of the association: %d bytes, want %d", len(b), assocChangeSize)
		}
		switch native.Uint16(b[8:]) {
		case 0:
			e.Kind = AssociationUp
		case 1, 4: // lost, or not even started
			e.Kind = AssociationLost
		case 2:
			e.Kind = AssociationRestarted
		case 3:
			e.Kind = AssociationEnded
		}
	case typePaddrChange:
		if len(b) < paddrChangeSize {
			return e, false, fmt.Errorf("notification of a path: %d bytes, want %d", len(b), paddrChangeSize)
		}
		a, _, err := sockaddr(b[8:])
		if err != nil {
			return e, false, fmt.Errorf("notification of a path: %w", err)
		}
		e.Path = a.Addr()
		kinds := [...]EventKind{PathUp, PathDown, PathRemoved, PathAdded, PathPrimary, PathConfirmed, PathFailing}
		if state := native.Uint32(b[136:]); state < uint32(len(kinds)) {
			e.Kind = kinds[state]
		}
	}
	return e, e.Kind != 0, nil
}
