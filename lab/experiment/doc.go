// Package experiment holds the laboratory's experiments on lossy and changing
// links: what is measured, what the papers have published about it, and how the
// two compare.
//
// An experiment has two halves. Measure runs where the kernel has SCTP and
// netem, which is usually the laboratory's guest; it builds its network from
// namespaces, runs the flows one after another and emits a Record for each. Run
// is the host's half: it starts the guest, runs the same set-up in ns-2 where
// there is one, and writes NAME.jsonl, NAME.md and NAME.svg.
//
// Papers are cited as [MS] (Parallel Transmission of Distributed Sensor Based on
// SCTP and TCP for Heterogeneous Wireless Networks in IoT) and [HT] (He and
// Tong, Comparison study of TCP and SCTP routing protocol, 2013).
package experiment
