package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as "64KB" (1000 bytes to the KB, as disks
// are sold) or "64KiB" (1024 bytes to the KiB), up to TB and TiB.
type Size int64

type sizeUnit struct {
	suffix string
	bytes  int64
}

// sizeUnits returns the units from the largest to the smallest; longer suffixes
// come before those they end in.
func sizeUnits() []sizeUnit {
	return []sizeUnit{
		{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9},
		{"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
	}
}

// UnmarshalText reads a whole number or a decimal fraction followed by a unit.
func (s *Size) UnmarshalText(text []byte) error {
	t := string(text)
	for _, u := range sizeUnits() {
		digits, ok := strings.CutSuffix(t, u.suffix)
		if !ok {
			continue
		}
		digits = strings.TrimSpace(digits)
		if strings.Trim(digits, "0123456789.") != "" {
			break
		}
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil || f*float64(u.bytes) >= math.MaxInt64 {
			break
		}
		*s = Size(f * float64(u.bytes))
		return nil
	}
	return fmt.Errorf("not a size")
}

// remedy says how to write one.
func (Size) remedy() string { return `write a number with KB, MB or GB, such as "256MB"` }

// String is the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits() {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}
