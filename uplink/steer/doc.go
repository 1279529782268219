// Package steer is the loop between measurements and what is done about them: it
// reads the paths, their probers and the sender's carriers, asks pathsel, and
// plans the sender's slots.
//
// The flow of one step, in step.go: take over the paths (track.go), measure what
// the carriers sent, lost and heard (measure.go), judge which paths live
// (judge.go), choose the path and the protocol (decide.go), see whether SCTP can
// be had at all (attempt.go), plan the slots and set the primary (plan.go), pace
// the probers (pace.go), and publish a snapshot (snapshot.go).
//
// The order of attempts is SCTP over all paths, then TCP over the best one. Every
// usable path keeps a TCP carrier on standby, so that nothing has to be dialled
// when another way fails: what was in flight there goes again at once. An idle
// standby costs a Ping and a Pong each keepalive, about 270 bytes with TCP, TLS
// and acknowledgements: 260 kB a day at the default of 90 s.
package steer
