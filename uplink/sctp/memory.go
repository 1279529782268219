package sctp

import "sync"

// chunkMemory knows how much of the kernel's memory a full chunk takes, which
// depends on the kernel and the processor. It learns from what writes add; some of
// what waited before may be acknowledged meanwhile, so the most that was seen is
// right. Too much would have chunks taken for acknowledged that are not.
type chunkMemory struct {
	mu             sync.Mutex
	fragment, full int // bytes of a message in a full chunk, and its memory; 0 while unknown
}

// learn takes in that a message of so many chunks added some bytes of memory.
func (m *chunkMemory) learn(fragment, chunks, added int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fragment != m.fragment {
		m.fragment, m.full = fragment, 0
	}
	m.full = max(m.full, added/chunks)
}

// bytes is how much of messages some memory holds, at most.
func (m *chunkMemory) bytes(memory int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.full == 0 {
		return uint64(memory)
	}
	return (uint64(memory)*uint64(m.fragment) + uint64(m.full) - 1) / uint64(m.full)
}
