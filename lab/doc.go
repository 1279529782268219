// Package lab runs the real programs in experiments: a Site is a gateway and a
// collector with keys of their own, a Load publishes to it, a Cut or a
// topology is the link between them, and an Oracle reads the output stream, for a Tally
// or a Ledger to compare with what was published.
//
// It knows the product as its users do: by its commands, configuration, status
// document and output stream.
package lab
