package lab

import "time"

// Usage is what a process has used since it started.
type Usage struct {
	CPU      time.Duration // user and system
	Resident int64         // bytes in memory now
	Peak     int64         // the most bytes in memory, since ResetPeak
	Written  int64         // bytes it caused to be written to storage
}
