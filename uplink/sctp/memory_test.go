package sctp

import "testing"

// A full chunk's memory is what the writes showed, and too little rather than too
// much is said to be acknowledged before there were any.
func TestChunkMemory(t *testing.T) {
	var m chunkMemory
	if got := m.bytes(5000); got != 5000 {
		t.Errorf("nothing known: got %d, want 5000", got)
	}
	m.learn(1372, 3, 3*2576)
	m.learn(1372, 3, 2*2576) // one was acknowledged meanwhile
	for memory, want := range map[int]uint64{0: 0, 2576: 1372, 10 * 2576: 13720, 2577: 1373} {
		if got := m.bytes(memory); got != want {
			t.Errorf("%d bytes of memory: got %d, want %d", memory, got, want)
		}
	}
	m.learn(500, 1, 1280) // another path
	if got := m.bytes(1280); got != 500 {
		t.Errorf("smaller chunks: got %d, want 500", got)
	}
}
