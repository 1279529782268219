package topology

// Traffic is what crossed a device: IP packets, and their bytes with IP and
// transport headers and without those of Ethernet.
type Traffic struct {
	Packets, Bytes uint64
}

// Sub returns what crossed since before.
func (t Traffic) Sub(before Traffic) Traffic {
	return Traffic{Packets: t.Packets - before.Packets, Bytes: t.Bytes - before.Bytes}
}

// Add returns the sum of both.
func (t Traffic) Add(other Traffic) Traffic {
	return Traffic{Packets: t.Packets + other.Packets, Bytes: t.Bytes + other.Bytes}
}
