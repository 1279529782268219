// Package ns2 runs the papers' simulator, ns 2.35 (Debian's package ns2), on
// scripts of ours: the wired experiments of [HT], the wired and wireless
// chain of [MS], and packet loss on one path and on two.
//
// The scripts print ns's trace; Simulate reads it as it comes and keeps bytes by
// slot, so that ten minutes of a trace need no disk. Throughput counts what
// arrives at the receiver, headers left out, as the papers' traces do.
package ns2
