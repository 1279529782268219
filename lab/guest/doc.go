// Package guest runs a program on another kernel and another processor than this
// machine's: in QEMU, by emulation, with a kernel of Debian's and a root file
// system in memory that holds the program and nothing else. So the lab has real
// SCTP, netem and WireGuard, and the real ARM binaries run, on any machine with
// QEMU and apt.
//
// A guest's time is its own: it passes by instructions executed, as on a processor
// that executes one every two nanoseconds, and not while this machine is busy
// otherwise. A busy guest takes several times as long as it believes, an idle one
// less.
//
// The guest's first process is a program of ours that calls Init. What the
// command prints comes back line by line on a channel of its own; the console is
// kept beside and shown when a run has failed.
package guest
