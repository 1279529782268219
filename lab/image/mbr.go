package image

import "encoding/binary"

// The layout of the disk, in bytes. A system of another size would not fit the
// boards' partitions.
const (
	mib        = 1 << 20
	fatStart   = 1 * mib
	fatSize    = 128 * mib
	systemSize = 256 * mib
	slotAStart = fatStart + fatSize
	slotBStart = slotAStart + systemSize
	dataStart  = slotBStart + systemSize
	dataSize   = 64 * mib // until the first boot
	diskSize   = dataStart + dataSize
)

// partition is an entry of the master boot record.
type partition struct {
	start, size int64
	kind        byte
}

// Kinds of partitions, as the master boot record numbers them.
const (
	kindFAT32 = 0x0c // addressed by sector
	kindLinux = 0x83
)

func partitions() []partition {
	return []partition{
		{fatStart, fatSize, kindFAT32},
		{slotAStart, systemSize, kindLinux},
		{slotBStart, systemSize, kindLinux},
		{dataStart, dataSize, kindLinux},
	}
}

// bootRecord returns the disk's first sector. Cylinders and heads are what stands
// for "by sector".
func bootRecord() []byte {
	const (
		sector, entries, entrySize = 512, 446, 16
		signature                  = 440
		bySector                   = "\xfe\xff\xff"
	)
	b := make([]byte, sector)
	copy(b[signature:], "SLCE")
	for i, p := range partitions() {
		e := b[entries+i*entrySize:]
		if i == 0 {
			e[0] = 0x80 // the one to boot
		}
		copy(e[1:], bySector)
		e[4] = p.kind
		copy(e[5:], bySector)
		binary.LittleEndian.PutUint32(e[8:], uint32(p.start/sector))
		binary.LittleEndian.PutUint32(e[12:], uint32(p.size/sector))
	}
	b[510], b[511] = 0x55, 0xaa
	return b
}
