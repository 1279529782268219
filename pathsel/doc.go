// Package pathsel decides, from measurements, which path and which protocol a
// gateway's data goes by. It is pure: the time and every measurement are
// arguments, the random source is injected, nothing blocks, and every answer
// carries its reason in words with the numbers. No type is safe for use by
// several goroutines at once.
//
// It is meant to be read beside the papers:
//
//	[MS]   MS-SCTP and TCP-SCTP (Sensors)
//
//	[MS] Algorithm 1, the choice of the primary path   losses.go, choose.go
//	[MS] Algorithm 2, the switch of the protocol       predict.go, table.go, congestion.go
//	[MS] Algorithm 3, when to act                      method.go
//	[MS] 4.3, loss as the retransmission ratio         ratio.go
//	ours: margin, hold-down, return to the preferred   hysteresis.go
//	ours: probation of paths that come back            probation.go
//	ours: a slow path counts against itself            slow.go
//	ours: silent death                                 death.go
//
// Loss rates, scores and margins are in percent or in points of percent, from 0
// to 100; [MS] gives a path that cannot be reached 101. Rates are in bytes a
// second.
//
// Profiles (profile.go) hold every number. Paper() is the paper's behaviour
// where the paper agrees with itself; Default() is the appliance's. Where they
// differ, and why, is in docs/path-selection.md, and each difference has a test
// of its own.
package pathsel

// Random draws a number in [0, n). *rand.Rand of math/rand/v2 is one.
type Random interface {
	IntN(n int) int
}
